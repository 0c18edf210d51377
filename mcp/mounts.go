package mcp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"demesne/runner"
)

// Mounts are the directories of the host that a model may have mounted or copied from,
// with what is below them. The zero Mounts allows nothing.
type Mounts struct{ roots []string }

// NewMounts resolves dirs, which must exist.
func NewMounts(dirs ...string) (Mounts, error) {
	var m Mounts
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return Mounts{}, fmt.Errorf("allow mounts from %q: %w", dir, err)
		}
		m.roots = append(m.roots, abs)
	}
	return m, nil
}

// String lists the roots as the tools' descriptions do.
func (m Mounts) String() string {
	quoted := make([]string, len(m.roots))
	for i, r := range m.roots {
		quoted[i] = "`" + r + "`"
	}
	return strings.Join(quoted, ", ")
}

// resolve returns where path leads, if that is below a root. There is no link in the answer,
// and whoever opens it must not follow one that has come there since: below the output root
// sandboxes write.
func (m Mounts) resolve(path string) (string, fs.FileInfo, error) {
	switch {
	case path == "":
		return "", nil, fmt.Errorf("mount path is empty")
	case !filepath.IsAbs(path):
		return "", nil, fmt.Errorf("mount path must be absolute: %s", path)
	}
	real, err := filepath.EvalSymlinks(filepath.Clean(path))
	if err != nil {
		return "", nil, fmt.Errorf("resolve mount path %s: %w", path, err)
	}
	for _, root := range m.roots {
		if real == root || root == "/" || strings.HasPrefix(real, root+"/") {
			info, err := os.Lstat(real)
			if err != nil {
				return "", nil, fmt.Errorf("resolve mount path %s: %w", path, err)
			}
			return real, info, nil
		}
	}
	return "", nil, fmt.Errorf("mount path %s is not within DEMESNE_ALLOWED_PATHS", path)
}

// inputs are the files and directories of a call, each under the last name of the path
// that was asked for.
func (m Mounts) inputs(files, dirs []string) ([]runner.Input, error) {
	var in []runner.Input
	from := map[string]string{}
	add := func(path string, wanted func(fs.FileInfo) bool, what string) error {
		real, info, err := m.resolve(path)
		if err != nil {
			return err
		}
		if !wanted(info) {
			return fmt.Errorf("%s is not a %s", path, what)
		}
		name := filepath.Base(filepath.Clean(path))
		if other, taken := from[name]; taken {
			return fmt.Errorf("mount basename %q would collide: %s and %s", name, other, path)
		}
		from[name] = path
		in = append(in, runner.Input{Path: real, Name: name})
		return nil
	}
	for _, p := range files {
		if err := add(p, func(i fs.FileInfo) bool { return i.Mode().IsRegular() }, "regular file"); err != nil {
			return nil, err
		}
	}
	for _, p := range dirs {
		if err := add(p, fs.FileInfo.IsDir, "directory"); err != nil {
			return nil, err
		}
	}
	return in, nil
}
