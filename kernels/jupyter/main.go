// Package jupyter is the frontends kernel, notebook and repl of demesne-frontend, which execute code in kernels that run in
// sandboxes. Package kernels/code makes the sandboxes and the kernels.
//
//	console.go      the command lines; sandbox.go: from flags to a sandbox
//	install.go   demesne kernel install, list and remove: kernelspecs of Jupyter
//	serve.go     demesne kernel run: the sockets of a kernel, for Jupyter's client
//	relay.go     the messages between that client and the kernel in the sandbox
//	safe.go      outputs without what would act in the user's browser; html.go: HTML
//	notebook.go  demesne notebook run; nbformat.go: the format of notebooks
//	repl.go      demesne repl; editor.go: its terminal, figure.go: its figures
//
// The caller and Jupyter's client are trusted. The kernel is not: what it sends is bounded, and reaches a terminal or
// a browser only after this program has made it harmless.
package jupyter

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
)

// Main executes the command line of the process for a verb, and exits.
func Main(verb string) {
	unix.Umask(unix.Umask(0o077) &^ 0o700)
	procself.OwnHome()
	procself.OwnState(fsutil.StateVariable)
	f := &console{Console: cmdline.OwnConsole()}
	os.Exit(f.main(verb, os.Args[1:]))
}
