// Package worker has the verbs build and build-request of demesne-images. demesne build executes the first, and package build
// the second. It turns their words into options of package build/executor, and the end of a build into an exit code and an
// event. A build executes the same program in some of its sandboxes: see executor.Fetch and recipe.Bootstrap.
package worker

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/build/executor"
	"demesne/build/recipe"
	"demesne/internal/cmdline"
	"demesne/internal/procself"
)

// Main executes the command line of the process and exits, if it is one of a build.
func Main() {
	switch {
	case os.Args[0] == recipe.BootstrapPath:
		unix.Umask(0o077)
		os.Exit(recipe.Bootstrap())
	case len(os.Args) < 2:
		return
	}
	switch verb, rest := os.Args[1], os.Args[2:]; {
	case verb == executor.FetchVerb && len(rest) == 1:
		unix.Umask(0o077)
		os.Exit(executor.Fetch(rest[0]))
	case verb == buildVerb:
		os.Exit(newConsole().main(rest))
	case verb == build.RequestVerb && len(rest) == 0:
		os.Exit(newConsole().request())
	}
}

// buildVerb begins the command line of a person.
const buildVerb = "build"

func newConsole() *console {
	os.WriteFile("/proc/self/comm", []byte("demesne-build"), 0) // the name in ps
	unix.Umask(0o077)
	procself.OwnHome()
	return &console{Console: cmdline.OwnConsole()}
}
