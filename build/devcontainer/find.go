package devcontainer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"demesne/internal/fsutil"
)

const (
	folder   = ".devcontainer"
	fileName = "devcontainer.json"
	hidden   = ".devcontainer.json"
)

// Locate splits a path that leads to a devcontainer.json, or to its directory below .devcontainer, into the workspace and
// the file in it. For any other path the workspace is the path, and file is empty.
func Locate(name string) (workspace, file string) {
	switch path.Base(name) {
	case hidden:
		return path.Dir(name), hidden
	case fileName:
		name = path.Dir(name)
	}
	switch {
	case path.Base(name) == folder:
		return path.Dir(name), path.Join(folder, fileName)
	case path.Base(path.Dir(name)) == folder:
		return path.Dir(path.Dir(name)), path.Join(folder, path.Base(name), fileName)
	}
	return name, ""
}

// Find returns the devcontainer.json of a workspace. One of several in directories of .devcontainer must be named.
func Find(root *os.Root) (string, error) {
	for _, name := range []string{path.Join(folder, fileName), hidden} {
		if _, err := root.Lstat(name); err == nil {
			return name, nil
		}
	}
	found, _ := fs.Glob(root.FS(), path.Join(folder, "*", fileName))
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%q: no %s/%s, %s or %s/NAME/%s", root.Name(), folder, fileName, hidden, folder, fileName)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found {
		names = append(names, path.Dir(f))
	}
	return "", &Refused{fmt.Errorf("%q: has several: %s", root.Name(), strings.Join(names, ", ")),
		"--devcontainer=" + filepath.Join(root.Name(), names[0]) + " names one"}
}

// Read reads a devcontainer.json of a workspace.
func Read(root *os.Root, name string) (*File, error) {
	text, err := ReadSmall(root, name)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// ReadSmall reads a regular file of a workspace, of at most MaxSize bytes. No link leads out of it.
func ReadSmall(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fsutil.Reason(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = fmt.Errorf("longer than %d bytes", MaxSize)
	}
	return text, fsutil.Reason(err)
}
