package languages

// Language is a row of the table.
type Language struct {
	Name       string
	Aliases    []string // further names, in lower case
	Extensions []string // of files, with the dot; the first is the usual one
	// Run has command lines that run a file: its path and the arguments follow. The first one applies whose program the
	// root has. nil: no such program is usual.
	Run [][]string
	// Check reads code from stdin, and reports errors of its syntax without executing it: see [Language.Problems]. nil: there
	// is no check, and Unchecked may say why.
	Check     []string
	Unchecked string
	Install   []string // installs packages: see [Language.Installer]; nil: no such program is usual
	Image     string   // a name of the catalogue of images that has the first interpreter; may be empty
	Kernel    string   // the language of kernelspecs, as these write it; empty: none are known
	Driver    string   // the interpreter of a driver in package driver; empty: none exists

	problem string // expression that finds a problem in what Check prints; empty: plainProblem
}

// Prints reports whether the usual kernels of Jupyter for the language, jslab and tslab, have no values, but print them.
func (l Language) Prints() bool { return l.Name == "node" || l.Name == "typescript" }

// Displays reports whether the usual kernel of Jupyter for the language, IRkernel, displays values in place of returning them.
func (l Language) Displays() bool { return l.Name == "r" }
