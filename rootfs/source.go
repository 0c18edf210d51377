package rootfs

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// errChanged reports that a source is not the file that the caller checked.
var errChanged = errors.New("changed while it was opened")

// name returns the source's name for errors.
func (s Source) name() string {
	if s.Mount != nil {
		return s.Mount.Name()
	}
	return s.Path
}

// open returns a detached mount of the source with the attributes added, and its kind (S_IFDIR, S_IFREG or
// S_IFSOCK). The caller closes it, unless it is s.Mount.
func (s Source) open(attrs uint64) (fd int, kind uint32, err error) {
	if s.Mount != nil {
		fd, kind, err = s.openMount(attrs)
	} else {
		fd, kind, err = s.openPath(attrs)
	}
	if err != nil {
		return -1, 0, fmt.Errorf("source %q: %w", s.name(), err)
	}
	return fd, kind, nil
}

// openPath opens the path once; all later steps use that descriptor. The caller has resolved the links on the way,
// so a link as the last component is a swap and is refused.
func (s Source) openPath(attrs uint64) (int, uint32, error) {
	at, err := fsutil.Openat2(unix.AT_FDCWD, s.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, 0, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(at)
	kind, err := s.kind(at)
	if err != nil {
		return -1, 0, err
	}
	fd, err := clone(at, "", attrs)
	return fd, kind, err
}

// openMount takes a mount that another process made. This process may lack the right to change its attributes; then
// the mount must already have them. In either case openMount checks with the kernel.
func (s Source) openMount(attrs uint64) (int, uint32, error) {
	fd := int(s.Mount.Fd())
	kind, err := s.kind(fd)
	if err != nil {
		return -1, 0, err
	}
	refused := setAttr(fd, attrs, true)
	if err := verify(fd, attrs); err != nil {
		return -1, 0, errors.Join(err, refused)
	}
	return fd, kind, nil
}

// kind refuses a file other than s.Same, and all kinds except those requested.
func (s Source) kind(fd int) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case s.Socket && kind != unix.S_IFSOCK:
		return 0, errors.New("not a socket")
	case !s.Socket && kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return 0, errors.New("not a regular file or directory")
	}
	if s.Same == nil {
		return kind, nil
	}
	var want unix.Stat_t
	if err := unix.Fstat(int(s.Same.Fd()), &want); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	if st.Dev != want.Dev || st.Ino != want.Ino {
		return 0, errChanged
	}
	return kind, nil
}

// verify asks the kernel whether the mount has the attributes. It checks the topmost mount only.
func verify(fd int, attrs uint64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	for _, a := range []struct {
		attr uint64
		flag int64
		name string
	}{
		{unix.MOUNT_ATTR_RDONLY, unix.ST_RDONLY, "read-only"},
		{unix.MOUNT_ATTR_NOSUID, unix.ST_NOSUID, "nosuid"},
		{unix.MOUNT_ATTR_NODEV, unix.ST_NODEV, "nodev"},
	} {
		if attrs&a.attr != 0 && int64(fs.Flags)&a.flag == 0 {
			return fmt.Errorf("the mount is not %s", a.name)
		}
	}
	return nil
}

// plainName reports whether a name is one component of a path.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}
