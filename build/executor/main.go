// Package executor builds images, for package build: it is the verbs build and build-request of demesne-images. demesne build
// executes the first, and package build the second.
//
// Package build/containerfile says what each instruction asks for. This package executes the steps that make layers, one
// sandbox for the steps of a stage, and keeps each layer under the step's key, so that the next build finds it:
//
//	console.go      the command line
//	builder.go   one build: its stages, in parallel where none needs another
//	stage.go     one stage: from FROM to its last instruction
//	find.go      images of the store and of registries
//	sandbox.go   the sandbox of a stage, and the layers it makes; own.go: what in them is not of the build
//	run.go       RUN; mounts.go, secrets.go: what it mounts, temp.go: private files of a build on the host
//	copy.go      COPY and WORKDIR; unpack.go, fetch.go, fetchurl.go: ADD; context.go, stdin.go: the files that they read
//	key.go       what a step's result depends on
//	publish.go   the image's configuration, history and name; output.go: files of it
//	recipe.go    images that demesne has a recipe for; bootstrap.go: the Debian system below them
//	show.go      progress
//
// A build makes nothing visible before its end: layers have no name but their key, and the image gets its name last. So a
// killed build leaves only layers, which the next build uses, or gc removes.
package executor

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/internal/procself"
)

// Main executes the command line of the process and exits, if it is one of a build.
func Main() {
	switch {
	case os.Args[0] == bootstrapPath:
		unix.Umask(0o077)
		os.Exit(bootstrap())
	case len(os.Args) < 2:
		return
	}
	switch verb, rest := os.Args[1], os.Args[2:]; {
	case verb == fetchVerb && len(rest) == 1:
		unix.Umask(0o077)
		os.Exit(fetchMain(rest[0]))
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
	return &console{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.LookupEnv}
}
