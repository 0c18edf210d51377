package mcp

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/fsutil"
)

// Mounts are the directories of the host, with their contents, that a model may mount or copy from. The zero Mounts
// allows nothing. Even inside these directories, [credentials] and the outputs of other callers are refused.
type Mounts struct {
	roots   []string
	homes   []string
	outputs string
	mine    func(name string) bool
	hidden  bool // see hiding
}

// NewMounts resolves the links in dirs, which must exist.
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

// rootsShown is how many roots a text names.
const rootsShown = 6

// String lists the roots, for descriptions and errors.
func (m Mounts) String() string {
	var quoted []string
	for _, r := range m.roots[:min(len(m.roots), rootsShown)] {
		quoted = append(quoted, "`"+r+"`")
	}
	if m.outputs != "" {
		quoted = append(quoted, "`"+m.shownRoot()+"`")
	}
	text := strings.Join(quoted, ", ")
	if more := len(m.roots) - rootsShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// outside is the error of a path that no root contains.
type outside struct {
	path   string
	mounts Mounts
}

func (e outside) Error() string {
	return fmt.Sprintf("mount path %s is not within DEMESNE_ALLOWED_PATHS (%s)", e.path, e.mounts)
}

// Hint says how a model can still get the file.
func (outside) Hint() string {
	return "ask the user to copy it below one of these, or to add its directory to DEMESNE_ALLOWED_PATHS; small texts fit into stdin or the command"
}

// resolve returns the path with all links resolved, if a root contains it. The caller must not follow links when it
// opens the result: sandboxes write below the output root and could create one meanwhile.
func (m Mounts) resolve(path string) (string, fs.FileInfo, error) {
	path = m.host(path)
	switch {
	case path == "":
		return "", nil, fmt.Errorf("mount path is empty")
	case !filepath.IsAbs(path):
		return "", nil, fmt.Errorf("mount path must be absolute: %s", path)
	case !m.plausible(path):
		return "", nil, outside{path, m}
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
		return "", nil, outside{path, m}
	default:
		if place, found := m.credential(real, info); found {
			return "", nil, fmt.Errorf("mount path %s: %s holds credentials: the operator must list it in DEMESNE_ALLOWED_PATHS", path, place)
		}
	}
	return real, info, nil
}

// isOutput reports whether real is inside an output directory that belongs to a run over MCP.
func (m Mounts) isOutput(real string) bool {
	rest, below := strings.CutPrefix(real, m.outputs+"/")
	name, _, _ := strings.Cut(rest, "/")
	return m.outputs != "" && below && m.mine(name)
}

// allows reports whether the operator allowed real. The output root also has the outputs of other callers, so a root
// above it does not allow it.
func (m Mounts) allows(real string) bool {
	return slices.ContainsFunc(m.roots, func(root string) bool { return fsutil.Within(real, root) }) &&
		(m.outputs == "" || !m.touches(real, m.outputs))
}

// touches reports whether real overlaps place, unless the operator named place or a directory inside it as a
// root.
func (m Mounts) touches(real, place string) bool {
	switch {
	case fsutil.Within(real, place):
		return !slices.ContainsFunc(m.roots, func(root string) bool { return fsutil.Within(root, place) && fsutil.Within(real, root) })
	case fsutil.Within(place, real):
		return !slices.Contains(m.roots, place)
	}
	return false
}

// Credential returns the place with credentials that a path without links overlaps, unless it is in a listed place inside
// of that. The path need not exist.
func Credential(path string, listed []string) (place string, found bool) {
	m := Mounts{roots: listed, homes: homes()}
	if info, err := os.Lstat(path); err == nil {
		return m.credential(path, info)
	}
	for _, p := range append(named(path, false), places(m.homes)...) {
		if m.touches(path, p) {
			return p, true
		}
	}
	return "", false
}

// credential returns the first place with credentials that real overlaps.
func (m Mounts) credential(real string, info fs.FileInfo) (place string, found bool) {
	known := places(m.homes)
	for _, p := range append(named(real, info.IsDir()), known...) {
		if m.touches(real, p) {
			return p, true
		}
	}
	return hardLink(info, slices.DeleteFunc(known, func(p string) bool { return slices.Contains(m.roots, p) }))
}
