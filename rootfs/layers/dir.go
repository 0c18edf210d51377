package layers

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// A dir is an open directory of the cache.
type dir struct{ *os.File }

func (d dir) fd() int { return int(d.Fd()) }

// open opens a directory below d, through no link and no "..".
func (d dir) open(name string, flags uint64) (dir, error) {
	fd, err := fsutil.Openat2(d.fd(), name, &unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return dir{}, fmt.Errorf("open %q: %w", d.Name()+"/"+name, err)
	}
	return dir{os.NewFile(uintptr(fd), d.Name()+"/"+name)}, nil
}

func (d dir) has(id DiffID) bool {
	name, err := id.encoded()
	if err != nil {
		return false
	}
	var st unix.Stat_t
	err = unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// lock opens name and locks it with [flock.Lock] or [flock.Try]. The name led to the directory after it was locked,
// and still does while every process that renames locks first.
func (d dir) lock(name string, lock func(*os.File, flock.Mode) error, how flock.Mode) (dir, error) {
	for {
		f, err := d.open(name, unix.O_RDONLY)
		if err != nil {
			return dir{}, err
		}
		if err := lock(f.File, how); err != nil {
			f.Close()
			return dir{}, fmt.Errorf("lock %q: %w", f.Name(), err)
		}
		if d.leads(name, f) {
			return f, nil
		}
		f.Close()
	}
}

// leads reports whether name still leads to f.
func (d dir) leads(name string, f dir) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(d.fd(), name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstat(f.fd(), &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// rename renames from, which the caller has locked.
func (d dir) rename(from, to string) error {
	if err := unix.Renameat2(d.fd(), from, d.fd(), to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("rename %q to %q: %w", from, to, err)
	}
	return nil
}

// write makes a file; it fails if the name exists.
func (d dir) write(name, text string) error {
	fd, err := unix.Openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("make %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), d.Name()+"/"+name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// removeLocked removes the directory name of at, which is open as tree and locked by the caller.
func removeLocked(at dir, name string, tree dir) (freed int64, err error) {
	freed, err = fsutil.Empty(tree.File)
	if err != nil {
		return freed, err
	}
	if err := unix.Unlinkat(at.fd(), name, unix.AT_REMOVEDIR); err != nil {
		return freed, fmt.Errorf("remove %q: %w", name, err)
	}
	return freed, nil
}
