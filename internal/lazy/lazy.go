// Package lazy makes values of packages at their first use. Each start of a program pays for what its packages make before
// main, and most processes need few of these values.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp is an expression that is compiled at its first use. As a variable of a package it costs a start nothing.
type Regexp struct {
	Expr string

	once     sync.Once
	compiled *regexp.Regexp
}

// Get returns the compiled expression. It panics if Expr is not valid.
func (r *Regexp) Get() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.Expr) })
	return r.compiled
}
