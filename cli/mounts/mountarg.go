package mounts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// Mount is a mount that a caller asked for.
type Mount struct {
	runner.Mount
	COW bool // the sandbox changes a copy, see package cow
}

// Modes are the words that may end the value of --mount.
var Modes = []string{"ro", "rw", "cow"}

// SplitMode cuts a mode off the end of a value. A value that exists as a path has no mode.
func SplitMode(arg string, modes ...string) (path, mode string) {
	cut := strings.LastIndexByte(arg, ':')
	if cut < 0 || !slices.Contains(modes, arg[cut+1:]) || fsutil.Exists(arg) {
		return arg, ""
	}
	return arg[:cut], arg[cut+1:]
}

// parseMounts resolves the values of --mount: SRC[:DST][:ro|:rw|:cow]. DST is SRC if it is left out, and the mode ro.
// A mount below another one comes after it, whatever their order in args.
func parseMounts(args []string) (all []Mount, err error) {
	for _, arg := range args {
		m, err := parseMount(arg)
		if err != nil {
			return nil, fmt.Errorf("mount %q: %w", arg, err)
		}
		all = append(all, m)
	}
	return byDepth(all), nil
}

// byDepth sorts mounts, so that one below another comes after it.
func byDepth(all []Mount) []Mount {
	slices.SortStableFunc(all, func(a, b Mount) int { return cmp.Compare(depth(a.Target), depth(b.Target)) })
	return all
}

// depth returns how many names the path of a mount point has.
func depth(target string) int { return strings.Count(target, "/") }

// parseMount resolves symbolic links in the source once, here, so that the receipt shows the real path. The target
// keeps the caller's spelling.
//
// A value that ends in runner.NoLinks has all three parts, and SRC has no symbolic link: it is what a person approved by its
// path. No file of that name changes how it is read.
func parseMount(arg string) (m Mount, err error) {
	given, exact := strings.CutSuffix(arg, runner.NoLinks)
	rest, mode := SplitMode(arg, Modes...)
	if exact {
		cut := max(strings.LastIndexByte(given, ':'), 0)
		rest, mode = given[:cut], strings.TrimPrefix(given[cut:], ":")
	}
	source, target := rest, ""
	if cut := strings.LastIndex(rest, ":/"); cut >= 0 && (exact || !fsutil.Exists(rest)) {
		source, target = rest[:cut], filepath.Clean(rest[cut+1:])
	}
	if source == "" {
		return m, errors.New("no path before the colon")
	}
	abs, err := filepath.Abs(source)
	if err != nil {
		return m, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return m, noSource(rest, err)
	}
	if exact && real != source {
		return m, errors.New("a symbolic link is in the path now")
	}
	m.Source, m.Target, m.COW = real, cmp.Or(target, abs), mode == "cow"
	m.ReadOnly = mode != "rw" && mode != "cow"
	if !utf8.ValidString(m.Source + m.Target) { // JSON, which carries it to the runner, would alter it
		return m, errors.New("is not UTF-8")
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return m, fsutil.Reason(err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return m, errors.New("is not a regular file or directory")
	case !info.IsDir() && !m.ReadOnly:
		return m, errors.New("is not a directory: a file can only be read-only")
	}
	return m, nil
}

// noSource explains a source that does not exist, perhaps because its last part was not understood.
func noSource(rest string, err error) error {
	if path, last, found := strings.Cut(rest, ":"); found && errors.Is(err, fs.ErrNotExist) && fsutil.Exists(path) {
		return fmt.Errorf("%q is neither an absolute path nor a mode (ro, rw, cow)", last)
	}
	return fsutil.Reason(err)
}

// cowWorkspaceMount returns the mount of a directory at /workspace with mode cow.
func cowWorkspaceMount(dir string) (m Mount, err error) {
	if m, err = parseMount(dir + ":/workspace:cow"); err == nil {
		return m, nil
	}
	return m, fmt.Errorf("workspace %q: %w", dir, err)
}
