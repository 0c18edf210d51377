package runner

import (
	"errors"
	"fmt"
	"strings"
)

// SplitInput splits PATH[:NAME]. A path may contain colons: an argument that exists as a whole is a path, and
// any other is split at its last colon. name is empty if none was given.
func SplitInput(arg string, exists func(string) bool) (path, name string, err error) {
	cut := strings.LastIndexByte(arg, ':')
	if cut < 0 || exists(arg) {
		return arg, "", nil
	}
	path, name = arg[:cut], arg[cut+1:]
	if path == "" {
		return "", "", errors.New("no path before the colon")
	}
	// A slash after the last colon means that the colon belongs to the path.
	if strings.ContainsRune(name, '/') && !exists(path) {
		return arg, "", nil
	}
	return path, name, CheckInputName(name)
}

// CheckInputName checks that name can be an entry of /in: one path element that prints as one line.
func CheckInputName(name string) error {
	switch {
	case name == "":
		return errors.New("no name after the colon")
	case name == "." || name == "..":
		return fmt.Errorf("name %q: not a file name", name)
	case len(name) > MostInputName:
		return fmt.Errorf("name longer than %d bytes", MostInputName)
	case strings.ContainsAny(name, "/\x00\n"):
		return fmt.Errorf("name %q: has a slash, a newline or a NUL byte", name)
	}
	return nil
}

// MostInputName is the longest name of a file, in bytes.
const MostInputName = 255
