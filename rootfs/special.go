package rootfs

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// specialMost is how many names of all inputs are checked for special files; each takes a microsecond.
const specialMost = 4096

// coverSpecial covers fifos and sockets in input directories with a device that cannot be opened. A read-only mount
// does not prevent opening a fifo for writing or connecting to a socket (open(2), connect(2)). No Landlock rule can
// revoke what a rule for / grants. coverSpecial checks the first specialMost names, once; files made later are not
// covered.
func (p *plan) coverSpecial() error {
	c := cover{left: specialMost}
	for _, m := range p.moves {
		if m.kind != unix.S_IFDIR {
			continue
		}
		if err := c.tree(m.fd); err != nil {
			return fmt.Errorf("cover special files of %s%s: %w", p.at, m.at, err)
		}
	}
	return nil
}

// cover is the state of one coverSpecial.
type cover struct {
	left int // names still to be checked
	buf  [16 << 10]byte
}

// tree covers the special files below a mount, breadth first. A directory that cannot be read here cannot be read
// inside either.
func (c *cover) tree(top int) error {
	for dirs := []string{"."}; len(dirs) > 0; dirs = dirs[1:] {
		fd, err := fsutil.Openat2(top, dirs[0], &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if err != nil {
			continue
		}
		below, err := c.dir(fd)
		unix.Close(fd)
		if err != nil {
			return err
		}
		for _, name := range below {
			dirs = append(dirs, path.Join(dirs[0], name))
		}
	}
	return nil
}

// dir covers the special files in one directory, and returns its subdirectories.
func (c *cover) dir(fd int) (below []string, err error) {
	for c.left > 0 {
		n, err := unix.Getdents(fd, c.buf[:])
		if n <= 0 || err != nil {
			return below, nil
		}
		for _, e := range fsutil.ParseDirents(c.buf[:n]) {
			if c.left--; c.left < 0 {
				return below, nil
			}
			switch kindOf(fd, e) {
			case unix.DT_DIR:
				below = append(below, e.Name)
			case unix.DT_FIFO, unix.DT_SOCK:
				if err := c.file(fd, e.Name); err != nil && err != unix.ENOENT {
					return nil, fmt.Errorf("%q: %w", e.Name, err)
				}
			}
		}
	}
	return below, nil
}

// kindOf returns the type of an entry, with a stat if the file system does not report it.
func kindOf(fd int, e fsutil.Dirent) byte {
	if e.Type != unix.DT_UNKNOWN {
		return e.Type
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e.Type
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT of dirent.h
}

// file covers one name, without following a link.
func (c *cover) file(at int, name string) error {
	on, err := fsutil.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(on)
	fd, err := clone(unix.AT_FDCWD, "/dev/null", attrBindRO) // nodev
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", on, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
