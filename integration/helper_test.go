package integration

import (
	"fmt"
	"os"
)

// helperMain is what this binary does when a test runs it again as "helper:NAME".
func helperMain(name string, args []string) int {
	if f := helpers[name]; f != nil {
		return f(args)
	}
	fmt.Fprintf(os.Stderr, "no helper %q\n", name)
	return 1
}

// helpers are the programs that are easier in Go than in C or sh.
var helpers = map[string]func(args []string) int{}
