// Keep the Go runtime from opening and watching the cgroup's CPU limit: pid1.Main sets GOMAXPROCS itself.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-init is PID 1 of every sandbox. demesne-runner starts it with the runner's socket at
// descriptor 3; it has no other use. Build it with CGO_ENABLED=0, for two reasons. It runs on root filesystems
// other than the host's. It also changes capabilities on all its threads, which Go refuses in programs that use
// cgo.
package main

import (
	"os"

	"demesne/internal/cmdline"
	"demesne/runner/fileops"
	"demesne/runner/files"
	"demesne/runner/pid1"
	"demesne/runner/services"
	"demesne/runner/tarball"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == services.Verb { // its arguments are a command's
		os.Exit(services.Main(os.Args[0], os.Args[1:]))
	}
	program := cmdline.Program{Name: "demesne-init", Summary: "PID 1 of a sandbox", About: "PID 1 of every sandbox. demesne-runner starts this program."}
	if text, ok := program.Answer(os.Args[1:]); ok {
		os.Stdout.WriteString(text)
		return
	}
	switch len(os.Args) { // with arguments it runs as a helper command in the sandbox, not as PID 1
	case 3:
		if carry := map[string]func(string) error{"connect": connect, "listen": listen}[os.Args[1]]; carry != nil {
			if err := carry(os.Args[2]); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				os.Exit(1)
			}
			os.Exit(0)
		}
		os.Exit(tarball.Inside(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case 2:
		switch os.Args[1] {
		case "tree":
			os.Exit(fileops.Serve(os.Stdin, os.Stdout, os.Stderr))
		case "agent":
			if err := agent(); err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
			}
			os.Exit(1)
		}
		os.Exit(files.Serve(os.Stdin, os.Stdout))
	}
	os.Exit(pid1.Main())
}
