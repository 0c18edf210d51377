package rootfs

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"demesne/internal/openat"
)

// specialMost is how many names of all inputs are looked at for special files: a microsecond each.
const specialMost = 4096

// coverSpecial covers fifos and sockets in the directories that are inputs with a device that cannot be opened. A read-only mount does not
// refuse to open a fifo for writing or to connect to a socket (open(2), connect(2)), and no Landlock rule takes back what a rule
// for / gives. It looks at the first specialMost names, and once: what comes later is not covered.
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

// cover is what covers special files.
type cover struct {
	left int // names that are looked at
	buf  [16 << 10]byte
}

// tree covers what is below a mount, the uppermost first. What cannot be read here cannot be inside.
func (c *cover) tree(top int) error {
	for dirs := []string{"."}; len(dirs) > 0; dirs = dirs[1:] {
		fd, err := unix.Openat2(top, dirs[0], &unix.OpenHow{
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

// dir covers what is in one directory, and returns the directories in it.
func (c *cover) dir(fd int) (below []string, err error) {
	for c.left > 0 {
		n, err := unix.Getdents(fd, c.buf[:])
		if n <= 0 || err != nil {
			return below, nil
		}
		for _, e := range openat.Entries(c.buf[:n]) {
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

// kindOf is the kind of an entry, also where its file system does not say.
func kindOf(fd int, e openat.Entry) byte {
	if e.Type != unix.DT_UNKNOWN {
		return e.Type
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e.Type
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT of dirent.h
}

// file covers one name, which is not followed.
func (c *cover) file(at int, name string) error {
	on, err := unix.Openat2(at, name, &unix.OpenHow{
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
