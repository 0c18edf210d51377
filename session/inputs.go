package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
)

// ParseInputs resolves the values of --in and --socket.
func ParseInputs(files, sockets []string) ([]runner.Input, error) {
	var all []runner.Input
	taken := map[string]string{}
	for i, arg := range slices.Concat(files, sockets) {
		what, flag, socket := "input", "--in", i >= len(files)
		if socket {
			what, flag = "socket", "--socket"
		}
		in, err := resolveInput(arg, socket)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", what, arg, err)
		}
		if other, ok := taken[in.Name]; ok {
			return nil, text.Hinted(fmt.Errorf("mount basename %q would collide: %s and %s", in.Name, other, in.Path),
				"use %s PATH:NAME to rename one of them", flag)
		}
		taken[in.Name] = in.Path
		all = append(all, in)
	}
	return all, nil
}

// resolveInput parses PATH[:NAME]. It resolves symbolic links once, here, so that the receipt shows the real
// path. The runner opens the result, and binds what it opened.
func resolveInput(arg string, socket bool) (runner.Input, error) {
	path, name, err := runner.SplitInput(arg, fsutil.Exists)
	if err != nil {
		return runner.Input{}, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return runner.Input{}, err
	}
	if name == "" {
		if name = filepath.Base(abs); runner.CheckInputName(name) != nil {
			return runner.Input{}, text.Hinted(errors.New("its name is not possible in /in"), "use --in PATH:NAME to rename it")
		}
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && fsutil.Exists(abs) {
			return runner.Input{}, errors.New("is a dangling symbolic link")
		}
		return runner.Input{}, fsutil.Reason(err)
	}
	if err := printable(real, name); err != nil {
		return runner.Input{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return runner.Input{}, fsutil.Reason(err)
	}
	if err := checkKind(info.Mode(), socket); err != nil {
		return runner.Input{}, err
	}
	return runner.Input{Path: real, Name: name, Socket: socket}, nil
}

// checkKind returns an error if a file's type does not suit the flag.
func checkKind(m fs.FileMode, socket bool) error {
	switch isSocket := m.Type() == fs.ModeSocket; {
	case socket && !isSocket:
		return errors.New("is not a socket")
	case !socket && isSocket:
		return text.Hinted(errors.New("is not a regular file or directory"), "use --socket for a socket")
	case !socket && !m.IsRegular() && !m.IsDir():
		return errors.New("is not a regular file or directory")
	}
	return nil
}
