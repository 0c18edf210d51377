package cli

import (
	"errors"
	"strings"
)

// checkInput is the part of the check that needs no file system.
func checkInput(arg string) error {
	switch {
	case arg == "":
		return errors.New("empty")
	case strings.ContainsRune(arg, 0):
		return errors.New("has a NUL byte")
	}
	return nil
}
