package jupyter

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
)

// place is a file in a directory that was opened before code ran. The code can exchange the directories of a workspace for
// links: a name that is looked up afterwards can lead to any directory of the user.
type place struct {
	dir  *os.Root
	name string
}

// openPlace opens the directory of a file that will be written. workspace may be empty.
func openPlace(path, workspace string) (*place, error) {
	root, below, err := openAbove(path, workspace)
	if err != nil {
		return nil, err
	}
	if root == nil {
		dir, err := os.OpenRoot(filepath.Dir(path))
		return &place{dir, filepath.Base(path)}, err
	}
	defer root.Close()
	dir, err := root.OpenRoot(filepath.Dir(below))
	return &place{dir, filepath.Base(below)}, err
}

// openFile opens a file to read it. workspace may be empty.
func openFile(path, workspace string) (*os.File, error) {
	root, below, err := openAbove(path, workspace)
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return os.Open(path)
	}
	defer root.Close()
	return root.Open(below)
}

// openAbove opens the workspace for a path below it, and returns the rest of the path. No link leads out of it from there:
// earlier code may have made one. root is nil for a path elsewhere.
func openAbove(path, workspace string) (root *os.Root, below string, err error) {
	if workspace == "" {
		return nil, "", nil
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, "", err
	}
	above, err := ancestor(filepath.Dir(path), workspace)
	if above == "" || err != nil {
		return nil, "", err
	}
	if below, err = filepath.Rel(above, path); err == nil {
		root, err = os.OpenRoot(above)
	}
	return root, below, err
}

// ancestor returns dir, or the directory above it, that is the workspace under this or another name. It returns "" if none is.
func ancestor(dir, workspace string) (string, error) {
	want, err := os.Stat(workspace)
	if err != nil {
		return "", err
	}
	for {
		if st, err := os.Stat(dir); err == nil && os.SameFile(st, want) {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

func (p *place) close() error { return p.dir.Close() }

// replace writes the file at once. A link of that name is replaced, and not followed.
func (p *place) replace(content []byte, mode os.FileMode) error {
	temp := ".notebook-" + rand.Text()
	f, err := p.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = p.dir.Rename(temp, p.name)
	}
	if err != nil {
		p.dir.Remove(temp)
	}
	return err
}
