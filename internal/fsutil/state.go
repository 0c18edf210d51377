package fsutil

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// StateVariable names the environment variable that replaces ~/.demesne, the directory of demesne's own files.
const StateVariable = "DEMESNE_STATE"

// StateDir returns a directory of demesne's own files: $DEMESNE_STATE/NAME, or ~/.demesne/NAME.
func StateDir(name string) (string, error) {
	if dir := os.Getenv(StateVariable); dir != "" {
		abs, err := filepath.Abs(dir)
		return filepath.Join(abs, name), err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".demesne", name), nil
}

// PrivateState returns the paths, without links, of demesne's own files that no sandbox and no image may have: keys,
// tokens, logs, and what later runs obey. It is empty if their directory is unknown.
func PrivateState() (paths []string) {
	state, err := StateDir("")
	if err != nil {
		return nil
	}
	state = WithoutLinks(state)
	for _, name := range []string{"vault", "audit", "host", "jobs", "ssh", "projects", "egress-rules.json", "server/token", "server/tokens.json", "server/acme"} {
		paths = append(paths, filepath.Join(state, name))
	}
	return paths
}

// EvalSymlinks is [filepath.EvalSymlinks], in fewer calls for an absolute path without links.
func EvalSymlinks(path string) (string, error) {
	if filepath.IsAbs(path) && lookStraight(path) == nil {
		return filepath.Clean(path), nil
	}
	return filepath.EvalSymlinks(path)
}

// lookStraight returns nil if a path exists and has no links, and ENOENT if its existing part has none.
func lookStraight(path string) error {
	fd, err := Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// WithoutLinks resolves the links in the existing part of path, which is absolute.
func WithoutLinks(path string) string {
	switch err := lookStraight(path); {
	case err == nil:
		return filepath.Clean(path)
	case err != unix.ENOENT:
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
	}
	if path == "/" {
		return path
	}
	return filepath.Join(WithoutLinks(filepath.Dir(path)), filepath.Base(path))
}

// Within reports whether path is dir or below it. Both must be clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Overlap reports whether one of two clean paths is within the other.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }
