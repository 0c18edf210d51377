package upper

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// ErrChanged reports that the caller changed a file after the sandbox got its view of it.
var ErrChanged = errors.New("changed meanwhile")

// errSpecial reports a file that is never applied.
var errSpecial = errors.New("is a device, fifo or socket")

// applyPrefix begins the names of files that Apply is making.
const applyPrefix = ".demesne-apply-"

// Apply makes one edit in the directory. Each file is replaced in one step, by a file that is complete. The file gets the
// sandbox's content, time of modification and permission bits, but no setuid, setgid or sticky bit, and the owner of
// the file that it replaces where that is permitted. A file that the caller changed meanwhile stays, unless force is
// set or the file lies in a cache: Apply then returns ErrChanged. Deletions are applied after all other edits, the last path
// first.
func (o *Over) Apply(e Edit, force bool) error { return o.apply(e, force || cached(e.Path), nil) }

// apply makes an edit. content, unless nil, replaces the sandbox's file's content.
func (o *Over) apply(e Edit, force bool, content []byte) error {
	if o.links == nil {
		o.links, o.dirs, o.buf = map[fileID]string{}, map[string]bool{}, make([]byte, 1<<20)
	}
	if e.Special {
		return errSpecial
	}
	dir, err := o.parent(path.Dir(e.Path))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	p := putting{Over: o, Edit: e, at: dir, name: path.Base(e.Path), force: force, content: content}
	if p.was, err = o.lower(e.Path); err != nil {
		return err
	}
	if now := stateOf(p.was); !force && (e.Changed || now != o.States[e.Path]) {
		return ErrChanged
	}
	if err := p.put(); err != nil {
		return err
	}
	now, err := o.lower(e.Path)
	o.States[e.Path] = stateOf(now)
	o.dirs[path.Dir(e.Path)] = true
	if e.kind == unix.S_IFDIR {
		o.dirs[e.Path] = true
	}
	return err
}

// parent opens a directory of Dir. It makes those that the sandbox made and that are missing.
func (o *Over) parent(file string) (int, error) {
	fd, err := openBelow(int(o.Dir.Fd()), file, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != unix.ENOENT || file == "." {
		return fd, err
	}
	up, err := statBelow(o.Up, file)
	if err != nil || kindOf(up) != unix.S_IFDIR {
		return -1, cmp.Or(err, error(unix.ENOENT))
	}
	above, err := o.parent(path.Dir(file))
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if err := fsutil.MkdirAt(above, path.Base(file), 0o700); err != nil {
		return -1, err
	}
	o.States[file], o.dirs[file] = stateOf(up), true
	return openBelow(above, path.Base(file), unix.O_RDONLY|unix.O_DIRECTORY)
}

// putting is the state of one Apply.
type putting struct {
	*Over
	Edit
	at      int // the directory of the caller
	name    string
	force   bool
	content []byte        // nil: the sandbox's file's
	was     *unix.Statx_t // what is there; nil: nothing
}

func (p *putting) put() error {
	temp := applyPrefix + rand.Text()
	switch {
	case p.Kind == 'D' && p.was == nil:
		return nil
	case p.Kind == 'D':
		return p.remove(temp)
	case p.kind == unix.S_IFDIR && kindOf(p.was) == unix.S_IFDIR:
		return nil // Finish sets its mode
	}
	if err := p.build(temp); err != nil {
		unix.Unlinkat(p.at, temp, 0)
		return err
	}
	err := p.place(temp)
	if err != nil {
		removeAll(p.at, temp)
	}
	return err
}

// build makes the new file, with another name.
func (p *putting) build(temp string) error {
	st, err := statBelow(p.Up, p.Path)
	if err != nil || kindOf(st) != p.kind {
		return cmp.Or(err, error(errMoved))
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: st.Mtime.Sec, Nsec: int64(st.Mtime.Nsec)}}
	switch {
	case p.kind == unix.S_IFDIR:
		return fsutil.MkdirAt(p.at, temp, 0o700)
	case p.content != nil:
		return p.write(temp, st) // with a time of its own, as it differs from the sandbox's file
	case p.kind == unix.S_IFLNK:
		err = p.link(temp)
	default:
		if first, ok := p.links[idOf(st)]; ok && st.Nlink > 1 {
			return p.again(first, temp)
		}
		err = p.file(temp, st)
	}
	if err == nil {
		err = unix.UtimesNanoAt(p.at, temp, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && st.Nlink > 1 {
		p.links[idOf(st)] = p.Path
	}
	return err
}

func (p *putting) link(temp string) error {
	dir, err := openBelow(int(p.Up.Fd()), path.Dir(p.Path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	target, err := fsutil.ReadlinkAt(dir, p.name)
	if err != nil {
		return err
	}
	return unix.Symlinkat(target, p.at, temp)
}

// again makes a further name of a file that was applied before.
func (p *putting) again(first, temp string) error {
	fd, err := openBelow(int(p.Dir.Fd()), first, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, fsutil.FDPath(fd), p.at, temp, unix.AT_SYMLINK_FOLLOW)
}

// file copies a regular file of the upper.
func (p *putting) file(temp string, st *unix.Statx_t) error {
	in, err := openBelow(int(p.Up.Fd()), p.Path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if now, err := stat(in, ""); err != nil || idOf(now) != idOf(st) {
		return cmp.Or(err, error(errMoved))
	}
	return p.create(temp, st, func(out int) error {
		c := copier{buf: p.buf}
		return c.contents(in, out, int64(st.Size))
	})
}

// write makes a regular file with p.content.
func (p *putting) write(temp string, st *unix.Statx_t) error {
	return p.create(temp, st, func(out int) error {
		for rest := p.content; len(rest) > 0; {
			n, err := unix.Write(out, rest)
			if err != nil && err != unix.EINTR {
				return err
			}
			rest = rest[max(n, 0):]
		}
		return nil
	})
}

// create makes a regular file with the permission bits of st, which fill fills.
func (p *putting) create(temp string, st *unix.Statx_t, fill func(out int) error) error {
	out, err := unix.Openat(p.at, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	if err := fill(out); err != nil {
		return err
	}
	if kindOf(p.was) == unix.S_IFREG {
		if err := unix.Fchown(out, int(p.was.Uid), int(p.was.Gid)); err != nil && err != unix.EPERM {
			return err
		}
	}
	return unix.Fchmod(out, uint32(st.Mode&0o777))
}

// place gives the new file its name. If there is another file, the two are exchanged. So the file that was there can be
// checked once more, when no one can replace it any longer, and can be put back.
func (p *putting) place(temp string) error {
	if p.was == nil {
		err := unix.Renameat2(p.at, temp, p.at, p.name, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			return ErrChanged
		}
		return err
	}
	err := unix.Renameat2(p.at, temp, p.at, p.name, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL && kindOf(p.was) != unix.S_IFDIR && p.kind != unix.S_IFDIR { // not supported here
		return unix.Renameat(p.at, temp, p.at, p.name)
	}
	if err != nil {
		return err
	}
	if err := p.check(temp); err != nil {
		return errors.Join(err, unix.Renameat2(p.at, temp, p.at, p.name, unix.RENAME_EXCHANGE))
	}
	return removeAll(p.at, temp)
}

// remove deletes the file. It gets another name first, so that it can be checked and put back.
func (p *putting) remove(temp string) error {
	if err := unix.Renameat2(p.at, p.name, p.at, temp, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	if err := p.check(temp); err != nil {
		return errors.Join(err, unix.Renameat2(p.at, temp, p.at, p.name, unix.RENAME_NOREPLACE))
	}
	return removeAll(p.at, temp)
}

// check reports whether the file of the caller, which has the name temp now, is still what was there before. In a
// directory, no file may have changed since the sandbox began.
func (p *putting) check(temp string) error {
	if p.force {
		return nil
	}
	now, err := stat(p.at, temp)
	if err != nil {
		return err
	}
	if idOf(now) != idOf(p.was) || now.Size != p.was.Size || now.Mtime != p.was.Mtime && kindOf(now) != unix.S_IFDIR {
		return ErrChanged
	}
	if kindOf(now) != unix.S_IFDIR {
		return nil
	}
	fd, err := enter(p.at, temp)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	w := &walk{}
	recent := false
	w.visit = func(_ int, name string, st *unix.Statx_t) error {
		recent = recent || name != "" && changed(st).After(p.Since)
		w.enough = recent
		return nil
	}
	if err := w.runFD(fd); err != nil {
		return err
	}
	if recent {
		return ErrChanged
	}
	return nil
}

// Finish gives the directories with applied edits the permission bits and times that they have in the upper, the lowest
// first.
func (o *Over) Finish() (err error) {
	var dirs []string
	for d := range o.dirs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	for _, d := range slices.Backward(dirs) {
		if derr := o.finishDir(d); derr != nil {
			err = errors.Join(err, fmt.Errorf("%q: %w", d, derr))
		}
	}
	o.dirs = map[string]bool{}
	return err
}

func (o *Over) finishDir(dir string) error {
	up, err := statBelow(o.Up, dir)
	if err != nil || kindOf(up) != unix.S_IFDIR || dir == "." {
		return err
	}
	fd, err := openBelow(int(o.Dir.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st, err := stat(fd, ""); err == nil && st.Mode&0o777 != up.Mode&0o777 {
		if err := unix.Fchmod(fd, uint32(st.Mode&0o7000|up.Mode&0o777)); err != nil {
			return err
		}
	}
	if st, err := stat(fd, ""); err == nil {
		o.States[dir] = stateOf(st)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: up.Mtime.Sec, Nsec: int64(up.Mtime.Nsec)}}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fsutil.FDPath(fd), times, 0)
}
