package operator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/session"
)

// Asker is who asks for a path of this machine.
type Asker struct {
	Operator bool // has the operator's token
	Own      bool // is a process of the server's user, at the server's unix socket
}

// HostPath checks that a caller may use a file or directory of this machine. The server's own user at its socket can read and
// write its files anyway. All others have what the operator lists. No link is followed: a sandbox or the caller may have
// made it, and the caller of HostPath opens the path without following one.
func (p *Policy) HostPath(a Asker, path string, write bool) (fs.FileInfo, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || !utf8.ValidString(path) {
		return nil, refused("path %q: not an absolute path without . and ..", path)
	}
	if own := a.Operator && a.Own && p.Namespace == "" && !p.Model; !own {
		allowed := func(d hostDir) bool {
			return (d.writable || !write) && (path == d.path || strings.HasPrefix(path, strings.TrimSuffix(d.path, "/")+"/"))
		}
		if !slices.ContainsFunc(p.hostDirs, allowed) {
			return nil, refused("path %q: the operator does not allow it here: only the server's own user at its unix socket has paths of this machine, and others what --allowed-mounts lists", path)
		}
	}
	fd, err := fsutil.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ELOOP) { // also of a link that leads nowhere: the answer must not tell what exists elsewhere
		return nil, refused("path %q: it leads through a symbolic link; give the path without one", path)
	}
	if err != nil {
		return nil, refused("path %q: %v", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, refused("path %q: %v", path, fsutil.Reason(err))
	}
	if !info.IsDir() && (write || !info.Mode().IsRegular()) {
		return nil, refused("path %q: not a directory, or a regular file with mode ro", path)
	}
	return info, nil
}

// Mount returns the mount that a caller asks for. apart means that its changes are kept apart, which only the server's user can
// handle afterwards. The directory itself then need not be writable.
func (p *Policy) Mount(a Asker, m session.HostMount) (mount runner.Mount, apart bool, err error) {
	if m.Mode != "" && !slices.Contains(session.HostModes, m.Mode) {
		return mount, false, refused("mode %q: not ro, rw or cow", m.Mode)
	}
	apart = m.Mode == "cow"
	info, err := p.HostPath(a, m.Source, m.Mode == "rw")
	switch {
	case err != nil:
		return mount, false, err
	case apart && !a.Operator:
		return mount, false, refused("mode cow: its changes stay with the server's user, and a namespace has none of them")
	case apart && !info.IsDir():
		return mount, false, refused("path %q: not a directory", m.Source)
	}
	mount = runner.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.Mode == "" || m.Mode == "ro"}
	if m.Target == "" {
		mount.Target = m.Source
	}
	if !filepath.IsAbs(mount.Target) || filepath.Clean(mount.Target) != mount.Target || !utf8.ValidString(mount.Target) {
		return mount, false, refused("target %q: not an absolute path without . and ..", mount.Target)
	}
	return mount, apart, nil
}
