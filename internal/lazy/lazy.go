// Package lazy makes values of packages at their first use. Each start of a program pays for what its packages make before
// main, and most processes need few of these values.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles an expression at its first call, and panics if it is not valid.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
