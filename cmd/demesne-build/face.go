package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/session"
	"demesne/images/build"
	"demesne/images/imageref"
	"demesne/internal/procself"
	"demesne/internal/text"
)

func parseImage(name string) (imageref.Ref, error) { return session.ParseImage(name) }

func namedImage(ref imageref.Ref, err error) error { return session.NamedImage(ref, err) }

// run runs one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr *os.File, env func(string) (string, bool)) int {
	code, err := face(args, stdin, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "demesne: build: %s\n", text.SafeLine(err.Error()))
		if hint := cli.HintOf(err); hint != "" {
			fmt.Fprintf(stderr, "hint: %s\n", text.SafeLine(hint))
		}
		return max(code, 125)
	}
	return code
}

func face(args []string, stdin io.Reader, stdout, stderr *os.File) (int, error) {
	o := options{dir: args[0], plan: build.Options{Args: map[string]string{}}}
	for _, a := range args[1:] {
		ref, err := parseImage(a)
		if err != nil {
			return 2, err
		}
		o.names = append(o.names, ref)
	}
	f, err := os.Open(filepath.Join(o.dir, "Containerfile"))
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.Open(filepath.Join(o.dir, "Dockerfile"))
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	file, err := build.Parse(filepath.Base(f.Name()), f)
	if err != nil {
		return 0, err
	}
	plan, err := file.Plan(o.plan)
	if err != nil {
		return 0, err
	}
	dir, err := openContext(o.dir, filepath.Base(f.Name()))
	if err != nil {
		return 0, err
	}
	b := &builder{context: dir, options: o, plan: plan, show: &show{to: stderr}, sessions: session.New(session.Options{})}
	defer b.sessions.Close()
	if b.images, err = session.OpenImages(); err != nil {
		return 0, err
	}
	d, err := b.build(procself.Ending())
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(stdout, d)
	return 0, nil
}
