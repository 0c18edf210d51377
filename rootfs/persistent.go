package rootfs

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// onKept makes the overlay whose upper is Layout.Kept. o is a copy: if this upper does not work, the caller tries
// the next one with its own overlay.
func (t *Tree) onKept(l Layout, o overlay) (*plan, error) {
	if len(o.lowers) == 0 { // overlayfs requires a lower
		bottom, err := newFS("tmpfs", attrBind, option{"mode", "0755"}, option{"size", "4k"})
		if err != nil {
			return nil, err
		}
		defer unix.Close(bottom)
		o.lowers, o.mounts = []int{bottom}, []int{bottom}
	}
	o.lowers, o.mounts = append([]int{}, o.lowers...), append([]int{}, o.mounts...)
	for _, f := range l.Below {
		o.lowers = append(o.lowers, int(f.Fd()))
	}
	kept, err := unix.Openat(int(l.Kept.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open persistent files: %w", err)
	}
	defer unix.Close(kept)
	o.upper, o.reused = dir{fd: kept, at: "persistent files "}, hasDir(kept, "up")
	// Remove shm: the mode of a new directory shows the umask, see [dir].
	if err := unix.Unlinkat(kept, "shm", unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return nil, fmt.Errorf("prepare persistent files: %w", err)
	}
	p, err := t.over(&o)
	if err != nil {
		return nil, err
	}
	t.Upper = UpperKept
	p.shm = nil // shared memory does not belong on a disk
	return p, nil
}

func hasDir(at int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// keptHost makes an overlay over the host's planned tree: the files of the plan become the lower, and its mounts go
// on top. An error after it set t.Upper does not come from overlayfs.
func (t *Tree) keptHost(l Layout, below *plan) (*plan, error) {
	p, err := t.onKept(l, overlay{lowers: []int{below.fd}, mounts: []int{below.fd}})
	if err != nil {
		return nil, err
	}
	moves := below.moves
	below.moves = nil
	if err := p.bare(l); err != nil {
		below.moves = moves
		return p, err
	}
	return p, p.adopt(moves)
}

// adopt takes over planned mounts, depending on what the sandbox made of their mount points. At the top level a
// missing directory is made again. Further down (/etc) a mount is left out if its mount point is missing or behind
// a link.
func (p *plan) adopt(moves []planned) error {
	var err error
	for _, m := range moves {
		switch {
		case err == nil && !strings.Contains(m.at, "/"):
			err = p.mkdir(m.at, 0o755)
		case err != nil || !p.isPlace(m):
			if m.owned {
				unix.Close(m.fd)
			}
			continue
		}
		p.moves = append(p.moves, m)
	}
	return err
}

func (p *plan) isPlace(m planned) bool {
	fd, err := fsutil.Openat2(p.fd, m.at, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == m.kind
}

// KeptUpper opens the upper in a directory that was a sandbox's Layout.Kept, to read it or to make another tree
// over it.
func KeptUpper(kept *os.File) (*os.File, error) {
	fd, err := fsutil.Openat2(int(kept.Fd()), "up", &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open upper of persistent files: %w", err)
	}
	return os.NewFile(uintptr(fd), "/"), nil
}
