package mcp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/runner"
)

// Mounts are the directories of the host that a model may have mounted or copied from,
// with what is below them. The zero Mounts allows nothing. What holds [credentials], and the outputs of other
// callers, is not a model's even there.
type Mounts struct {
	roots   []string
	homes   []string
	outputs string
	mine    func(name string) bool
}

// NewMounts resolves dirs, which must exist.
func NewMounts(dirs ...string) (Mounts, error) {
	m := Mounts{homes: homes()}
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

// Outputs allows the output directories in root, links resolved, that mine says are a model's.
func (m Mounts) Outputs(root string, mine func(name string) bool) Mounts {
	m.outputs, m.mine = root, mine
	return m
}

// String lists the roots as the tools' descriptions do.
func (m Mounts) String() string {
	var quoted []string
	for _, r := range m.roots {
		quoted = append(quoted, "`"+r+"`")
	}
	if m.outputs != "" {
		quoted = append(quoted, "`"+m.outputs+"`")
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
	info, err := os.Lstat(real)
	if err != nil {
		return "", nil, fmt.Errorf("resolve mount path %s: %w", path, err)
	}
	switch {
	case m.isOutput(real):
	case !m.allows(real):
		return "", nil, fmt.Errorf("mount path %s is not within DEMESNE_ALLOWED_PATHS", path)
	default:
		if place, found := m.credential(real, info); found {
			return "", nil, fmt.Errorf("mount path %s: %s holds credentials: only an operator who names it in DEMESNE_ALLOWED_PATHS opens it", path, place)
		}
	}
	return real, info, nil
}

// isOutput says whether real is in an output directory of a model's.
func (m Mounts) isOutput(real string) bool {
	rest, below := strings.CutPrefix(real, m.outputs+"/")
	name, _, _ := strings.Cut(rest, "/")
	return m.outputs != "" && below && m.mine(name)
}

// allows says whether an operator allowed real. The output root, which has others' outputs too, has to be named itself.
func (m Mounts) allows(real string) bool {
	return slices.ContainsFunc(m.roots, func(root string) bool { return within(real, root) }) &&
		(m.outputs == "" || !m.touches(real, m.outputs))
}

// touches says whether real has some of place, or is in it, without an operator who named that.
func (m Mounts) touches(real, place string) bool {
	switch {
	case within(real, place):
		return !slices.ContainsFunc(m.roots, func(root string) bool { return within(root, place) && within(real, root) })
	case within(place, real):
		return !slices.Contains(m.roots, place)
	}
	return false
}

// credential finds the first place with credentials that real has some of.
func (m Mounts) credential(real string, info fs.FileInfo) (place string, found bool) {
	known := places(m.homes)
	for _, p := range append(named(real, info.IsDir()), known...) {
		if m.touches(real, p) {
			return p, true
		}
	}
	return hardLink(info, slices.DeleteFunc(known, func(p string) bool { return slices.Contains(m.roots, p) }))
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
