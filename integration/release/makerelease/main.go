// Command makerelease makes the files of a release in a directory. make release calls it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"demesne/integration/release"
)

func main() {
	o := release.Options{Key: os.Getenv("MINISIGN_KEY"), Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "release: "+format+"\n", args...) }}
	flag.StringVar(&o.Source, "source", ".", "root of the tree")
	flag.StringVar(&o.Out, "out", "bin/release", "directory for the result")
	flag.StringVar(&o.Bin, "bin", "", "pack the programs of this directory, instead of a build")
	flag.BoolVar(&o.Packages, "packages", true, "also make an MCP bundle, a .deb and an .rpm")
	flag.Func("arch", "processors, separated by commas (default: all that a C compiler is here for)", func(s string) error {
		o.Arch = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	})
	flag.Parse()
	files, err := release.Make(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	for _, name := range files {
		fmt.Println(o.Out + "/" + name)
	}
}
