// Package promptui replaces the module of the same import path (see go.mod). Package shortnames of go.podman.io/image/v5 asks
// with it which registry a short name means, on a terminal. demesne never asks there: demesne-images has no terminal. The
// original links text/template, which finds methods by their names, so that the linker would keep every method of the program.
//
// It offers only the names that package shortnames uses.
package promptui

import "errors"

// Select is a question with several answers.
type Select struct {
	Label    any
	Items    any
	HideHelp bool
}

// Run refuses to ask.
func (*Select) Run() (int, string, error) {
	return 0, "", errors.New("ask on a terminal: not supported")
}
