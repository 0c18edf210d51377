package agents

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// hostFiles are the files that the host writes of an agent, which its /out has in the end.
var hostFiles = []string{"transcript.jsonl", "stderr.log", "usage.json", "usage.jsonl", "attribution.jsonl", resultsName}

// Place copies the files that the host wrote of an agent from the directory from to out, its /out. The sandbox is
// gone. It may have made anything at these names: a file or a link is replaced, and a directory is renamed to
// NAME.sandbox, or NAME.sandbox-1 and so on. No link is followed. Files that from lacks are left out.
func Place(from, out *os.Root) error {
	var errs []error
	for _, name := range hostFiles {
		if err := place(from, out, name); err != nil {
			errs = append(errs, fmt.Errorf("place %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func place(from, out *os.Root, name string) error {
	src, err := from.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer src.Close()
	put := func() error {
		return replaceFile(out, name, func(w io.Writer) error {
			if _, err := src.Seek(0, io.SeekStart); err != nil {
				return err
			}
			_, err := io.Copy(w, src)
			return err
		})
	}
	if err = put(); errors.Is(err, fs.ErrPermission) && out.Chmod(".", 0o700) == nil { // the sandbox may change the mode
		err = put()
	}
	return err
}

// replaceFile replaces the file name of dir, with mode 0600. A reader sees the old content or the new. A directory
// of that name is moved aside.
func replaceFile(dir *os.Root, name string, write func(io.Writer) error) (err error) {
	draft := "." + name + "." + rand.Text()
	f, err := dir.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			dir.Remove(draft)
		}
	}()
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = dir.Rename(draft, name); err == nil || !isDir(dir, name) {
		return err
	}
	if err = moveAside(dir, name); err != nil {
		return err
	}
	return dir.Rename(draft, name)
}

func isDir(dir *os.Root, name string) bool {
	info, err := dir.Lstat(name)
	return err == nil && info.IsDir()
}

// moveAside renames a directory that a sandbox made. It never removes one: that takes as long as the sandbox likes.
func moveAside(dir *os.Root, name string) error {
	to := name + ".sandbox"
	for n := 1; n <= 8; n++ {
		if _, err := dir.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return dir.Rename(name, to)
		}
		to = name + ".sandbox-" + strconv.Itoa(n)
	}
	to = name + ".sandbox-" + rand.Text()
	if err := dir.Rename(name, to); !errors.Is(err, syscall.EEXIST) {
		return err
	}
	return fmt.Errorf("rename %q: %w", name, fs.ErrExist)
}
