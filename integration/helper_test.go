package integration

import (
	"fmt"
	"os"
)

// helperMain runs the named helper when a test runs this binary again as "helper:NAME", and returns its exit
// code.
func helperMain(name string, args []string) int {
	if f := helpers[name]; f != nil {
		return f(args)
	}
	fmt.Fprintf(os.Stderr, "no helper %q\n", name)
	return 1
}

// helpers contains the helper programs that are easier to write in Go than in C or sh.
var helpers = map[string]func(args []string) int{}
