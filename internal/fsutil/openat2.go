package fsutil

import (
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// lacking is set once this process found that it has no openat2(2).
var lacking atomic.Bool

// Openat2 is openat2(2). Seccomp filters refuse that call in many places: in units with RestrictSUIDSGID or DynamicUser,
// in sandboxes of demesne, and in containers of old engines, which answer EPERM. Openat2 then walks the path with
// openat(2) and O_NOFOLLOW, one component at a time, with the same guarantees:
//
//   - it opens each component from the descriptor of the one before, so that a renamed directory leads nowhere else;
//   - below a root (RESOLVE_BENEATH, RESOLVE_IN_ROOT) ".." returns to the descriptor it came from, never above the root;
//   - it reads a symbolic link from a descriptor of the link itself, and follows none that how forbids;
//   - it compares the id of the mount after each step (RESOLVE_NO_XDEV).
//
// The walk follows no magic link of proc(5), whatever how says. Openat2 also walks if openat2(2) answers EAGAIN, as it
// does for a ".." below a root while any process of the machine renames or mounts.
func Openat2(at int, path string, how *unix.OpenHow) (int, error) {
	if !lacking.Load() {
		fd, err := unix.Openat2(at, path, how)
		switch {
		case err == unix.EAGAIN:
		case err != unix.ENOSYS && err != unix.EPERM || HasOpenat2() == nil:
			return fd, err
		default:
			lacking.Store(true)
		}
	}
	return walkTo(at, path, how)
}

// HasOpenat2 returns the error of a process that may not call openat2(2).
func HasOpenat2() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	switch err {
	case nil:
		return unix.Close(fd)
	case unix.ENOSYS, unix.EPERM:
		return err
	}
	return nil
}

// maxLinks is the kernel's bound (path_resolution(7)).
const maxLinks = 40

// pathWalk is one call of walkTo. dirs holds the directories from the start to the current one; the first is the root
// of a call that has one.
type pathWalk struct {
	how   *unix.OpenHow
	dirs  []int
	rest  []string
	mount uint64 // of the start; only for RESOLVE_NO_XDEV
	links int
}

func (w *pathWalk) has(resolve uint64) bool { return w.how.Resolve&resolve != 0 }

// rooted means that the walk stays below the start.
func (w *pathWalk) rooted() bool { return w.has(unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT) }

func (w *pathWalk) dir() int { return w.dirs[len(w.dirs)-1] }

func (w *pathWalk) close() {
	for _, fd := range w.dirs {
		unix.Close(fd)
	}
}

func walkTo(at int, path string, how *unix.OpenHow) (int, error) {
	w := &pathWalk{how: how}
	defer w.close()
	if path == "" {
		return -1, unix.ENOENT
	}
	start := "."
	if strings.HasPrefix(path, "/") && !w.rooted() {
		start = "/"
	}
	fd, err := unix.Openat(at, start, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	w.dirs = []int{fd}
	if strings.HasPrefix(path, "/") && w.has(unix.RESOLVE_BENEATH) {
		return -1, unix.EXDEV
	}
	if w.has(unix.RESOLVE_NO_XDEV) {
		if w.mount, err = mountOf(fd); err != nil {
			return -1, err
		}
	}
	w.rest = components(path)
	for {
		name := "."
		if len(w.rest) > 0 {
			name, w.rest = w.rest[0], w.rest[1:]
		}
		if len(w.rest) == 0 && name != ".." {
			fd, err := w.last(name)
			if fd >= 0 || err != nil {
				return fd, err
			}
			continue
		}
		if err := w.step(name); err != nil {
			return -1, err
		}
	}
}

// components splits a path. A slash at the end asks for a directory, as "." does.
func components(path string) (all []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" {
			all = append(all, name)
		}
	}
	if strings.HasSuffix(path, "/") {
		all = append(all, ".")
	}
	return all
}

// step enters a directory, or puts the target of a link before the rest.
func (w *pathWalk) step(name string) error {
	switch {
	case name == ".":
		return nil
	case name == ".." && w.rooted():
		switch {
		case len(w.dirs) > 1:
			unix.Close(w.dir())
			w.dirs = w.dirs[:len(w.dirs)-1]
		case w.has(unix.RESOLVE_BENEATH):
			return unix.EXDEV
		}
		return nil
	}
	fd, err := unix.Openat(w.dir(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		defer unix.Close(fd)
		return w.follow(fd, &st)
	case unix.S_IFDIR:
		if err := w.sameMount(fd); err != nil {
			unix.Close(fd)
			return err
		}
		w.dirs = append(w.dirs, fd)
		return nil
	}
	unix.Close(fd)
	return unix.ENOTDIR
}

// last opens the last component. It returns -1 without an error if that was a link, whose target is the rest now.
func (w *pathWalk) last(name string) (int, error) {
	flags := int(w.how.Flags)
	fd, err := unix.Openat(w.dir(), name, flags|unix.O_NOFOLLOW, uint32(w.how.Mode))
	if flags&unix.O_NOFOLLOW == 0 && (err == nil && flags&unix.O_PATH != 0 || err == unix.ELOOP || err == unix.ENOTDIR) {
		link, lerr := unix.Openat(w.dir(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if lerr == nil {
			defer unix.Close(link)
			var st unix.Stat_t
			if unix.Fstat(link, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				if err == nil {
					unix.Close(fd)
				}
				return -1, w.follow(link, &st)
			}
		}
	}
	if err != nil {
		return -1, err
	}
	// If a link has replaced the file since, the descriptor is the link's own, and does not lead to the target.
	if err := w.sameMount(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// follow puts the target of a link before the rest.
func (w *pathWalk) follow(link int, st *unix.Stat_t) error {
	if w.links++; w.has(unix.RESOLVE_NO_SYMLINKS) || w.links > maxLinks {
		return unix.ELOOP
	}
	var dir unix.Stat_t
	if err := unix.Fstat(w.dir(), &dir); err != nil {
		return err
	}
	// As fs.protected_symlinks, proc_sys_fs(5), which the kernel applies only where it follows a link itself.
	if dir.Mode&(unix.S_ISVTX|unix.S_IWOTH) == unix.S_ISVTX|unix.S_IWOTH && st.Uid != dir.Uid && int(st.Uid) != unix.Geteuid() {
		return unix.EACCES
	}
	var text [unix.PathMax]byte
	n, err := unix.Readlinkat(link, "", text[:])
	if err != nil {
		return err
	}
	target := string(text[:n])
	var fs unix.Statfs_t
	if err := unix.Fstatfs(link, &fs); err != nil {
		return err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC && (strings.HasPrefix(target, "/") || strings.Contains(target, ":")) { // such as "pipe:[1]"
		return unix.ELOOP
	}
	w.rest = append(components(target), w.rest...)
	if !strings.HasPrefix(target, "/") {
		return nil
	}
	return w.toRoot()
}

// toRoot goes where an absolute link leads.
func (w *pathWalk) toRoot() error {
	switch {
	case w.has(unix.RESOLVE_BENEATH):
		return unix.EXDEV
	case w.has(unix.RESOLVE_IN_ROOT):
		for len(w.dirs) > 1 {
			unix.Close(w.dir())
			w.dirs = w.dirs[:len(w.dirs)-1]
		}
		return nil
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.dirs = append(w.dirs, fd)
	return w.sameMount(fd)
}

// sameMount refuses a descriptor on another mount than the start if how does.
func (w *pathWalk) sameMount(fd int) error {
	if !w.has(unix.RESOLVE_NO_XDEV) {
		return nil
	}
	if id, err := mountOf(fd); err != nil || id != w.mount {
		return unix.EXDEV
	}
	return nil
}

// mountOf returns the id of the mount of a file.
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 { // before Linux 5.8, or an emulated kernel
		err = unix.ENOSYS
	}
	return st.Mnt_id, err
}
