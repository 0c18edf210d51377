package tarball

import (
	"fmt"
	"io"
	"math"
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

// Inside is the sandbox's side: demesne-init, executed there as a command with these arguments. It copies between a
// tar stream and the sandbox's files.
//
//	put PATH     a file on stdin → PATH, or into PATH if that is a directory or ends in /
//	merge PATH   a directory on stdin → PATH, merged into an existing directory
//	get PATH     PATH → stdout, under its last name
//
// It creates missing directories above PATH. It returns an exit status and writes errors to errs as one line.
func Inside(args []string, in io.Reader, out, errs io.Writer) int {
	if err := inside(args[0], args[1], in, out); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

func inside(verb, name string, in io.Reader, out io.Writer) error {
	switch verb {
	case Lay:
		return lay(name, in)
	case Gather:
		return gather(name, out)
	case Own:
		return own(name)
	case Get:
		return get(filepath.Clean(name), out)
	case Put:
		return put(filepath.Clean(name), strings.HasSuffix(name, "/") || isDir(name), in)
	case Merge:
		if isDir(name) {
			return merge(name, in)
		}
		return put(filepath.Clean(name), false, in)
	}
	return fmt.Errorf("unknown verb %q", verb)
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// put puts a file or directory into the directory name, or gives it that name.
func put(name string, into bool, in io.Reader) error {
	dir, as := name, ""
	if !into {
		dir, as = filepath.Dir(name), filepath.Base(name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return stage(dir, as, in, mover.moveAll)
}

// merge merges a directory into an existing one.
func merge(dir string, in io.Reader) error {
	const all = "all"
	return stage(dir, all, in, func(m mover, part, to *os.Root) error {
		from, err := part.OpenRoot(all)
		if err != nil {
			return err
		}
		defer from.Close()
		return m.moveAll(from, to)
	})
}

// stage unpacks in into a Part of dir. When everything has arrived, it calls deliver to move it to its place. In a
// sandbox it follows links, which belong to the sandbox.
func stage(dir, as string, in io.Reader, deliver func(m mover, part, to *os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	part, err := NewPart(root)
	if err != nil {
		return err
	}
	defer part.Remove()
	if _, err := Unpack(in, part.Dir, Options{Links: true, As: as, Limits: Limits{Bytes: math.MaxInt64, Entries: math.MaxInt}}); err != nil {
		return err
	}
	return deliver(mover{links: true}, part.Dir, root)
}

// get resolves the links in name. It runs inside the sandbox, on the sandbox's own links; the host never follows them.
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
	_, err = Pack(out, root, filepath.Base(real), filepath.Base(name), Limits{Bytes: math.MaxInt64, Entries: math.MaxInt})
	return err
}
