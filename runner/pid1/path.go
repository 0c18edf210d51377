package pid1

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPath bounds the directories that a request can add to PATH: each costs a lookup.
const maxPath = 64

// addPath adds to PATH the directories that exist and that the command's user can enter. It drops the others, which
// would tell the command about directories of the host. A process can enter a directory that Landlock hides, and see
// that a program is there, but not execute it: some programs look themselves up, and would find that one.
func (c *command) addPath(dirs []string) {
	dirs = slices.DeleteFunc(dirs[:min(len(dirs), maxPath)], func(dir string) bool {
		hidden := func() error {
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			unix.Close(fd)
			if err != nil && unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK, unix.AT_EACCESS) != nil { // by its mode
				return nil
			}
			return err
		}
		return !filepath.IsAbs(dir) || strings.Contains(dir, ":") || c.who.access(dir, unix.O_DIRECTORY) != nil || is(c.who.as(hidden), unix.EACCES)
	})
	if len(dirs) == 0 {
		return
	}
	at := slices.IndexFunc(c.env, func(e string) bool { return strings.HasPrefix(e, pathPrefix) })
	if at < 0 {
		c.env, at = append(c.env, pathPrefix+defaultPath), len(c.env)
	}
	own := strings.Split(strings.TrimPrefix(c.env[at], pathPrefix), ":")
	c.env[at] = pathPrefix + strings.Join(mergePath(own, dirs), ":")
}

// mergePath returns own with dirs, each once. dirs keep their order and stand where own first repeats one of them, or
// at the end. So a directory that own puts before the system's stays there.
func mergePath(own, dirs []string) []string {
	at := slices.IndexFunc(own, func(dir string) bool { return slices.Contains(dirs, dir) })
	if at < 0 {
		at = len(own)
	}
	var merged []string
	for _, dir := range slices.Concat(own[:at], dirs, own[at:]) {
		if !slices.Contains(merged, dir) {
			merged = append(merged, dir)
		}
	}
	return merged
}
