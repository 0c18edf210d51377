// Package driver has demesne's own kernels, for roots that have an interpreter but no Jupyter kernel.
//
// Each is one file, which the interpreter gets as an argument: no file of it exists in the sandbox. A kernel speaks
// Jupyter's messages, one JSON object a line and without signatures:
//
//	descriptor 0       /dev/null
//	descriptors 1, 2   what the code and its child processes write, in any form
//	descriptor 3       requests to the kernel
//	descriptor 4       answers and outputs
//	descriptor 5       a line for each interrupt, with the id of the request to interrupt; SIGINT follows
//
// Its last argument is a key. It puts marks of the key into descriptors 1 and 2, so that its client knows which outputs
// precede a message: see type lines of package kernels.
package driver

import _ "embed"

// python is a kernel for Python 3.8 and later. It needs only the standard library.
//
//go:embed driver.py
var python string

// node is a kernel for Node.js 18 and later. It needs no package.
//
//go:embed driver.js
var node string

// bash is a kernel for bash 4.2 and later. It needs /proc, but no other program.
//
//go:embed driver.sh
var bash string

// Argv returns the command of the kernel for a language, by its name in package languages, or nil. The last argument,
// the key, is to be added.
func Argv(language string) []string {
	switch language {
	case "python":
		return []string{"python3", "-c", python}
	case "node", "typescript":
		return []string{"node", "--no-force-async-hooks-checks", "-e", node, language}
	case "bash":
		return []string{"bash", "--noprofile", "--norc", "-c", bash, "bash"}
	}
	return nil
}
