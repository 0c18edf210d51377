package tarball

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Verbs of [Inside].
const (
	Put   = "put"
	Merge = "merge"
	Get   = "get"
)

// Inside is the sandbox's side: demesne-init executed as a command there, with these
// arguments, copying between a tar stream and the sandbox's files.
//
//	put PATH     a file on stdin → PATH, or into PATH if that is a directory or ends in /
//	merge PATH   a directory on stdin → PATH, added to what is there
//	get PATH     PATH → stdout, under its last name
//
// Directories above PATH are made. It returns an exit status; what went wrong is one line
// on errs.
func Inside(args []string, in io.Reader, out, errs io.Writer) int {
	if err := inside(args[0], args[1], in, out); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

func inside(verb, name string, in io.Reader, out io.Writer) error {
	switch verb {
	case Get:
		return get(filepath.Clean(name), out)
	case Put, Merge:
		into := verb == Put && (strings.HasSuffix(name, "/") || isDir(name))
		return put(filepath.Clean(name), into, in)
	}
	return fmt.Errorf("%q: not a verb", verb)
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

func put(name string, into bool, in io.Reader) error {
	dir, as := name, ""
	if !into {
		dir, as = filepath.Dir(name), filepath.Base(name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = Unpack(in, root, Options{Links: true, As: as})
	return err
}

// get follows a link, the one time that anybody does: the sandbox, in the sandbox.
func get(name string, out io.Writer) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return err
	}
	defer root.Close()
	return Pack(out, root, filepath.Base(real), filepath.Base(name))
}
