package grants

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// TakeBack takes back all grants of a killed runner's sandboxes. It settles the directories, restores their modes
// and access lists, and removes the sockets. No process of a sandbox may be alive. It runs in the runner's user
// namespace, or on the host if the records have the ids. stepped means that the clock may have been set. TakeBack
// goes on after a failure.
func TakeBack(run, key string, stepped bool) error {
	return each(run, key, "", func(r Record) error {
		if r.IDs == nil && os.Geteuid() != 0 { // outside of the namespace only the caller's own files can be changed
			r.IDs = &runner.IDRange{}
		}
		err := r.closeSockets()
		for _, d := range r.Dirs {
			err = errors.Join(err, d.takeBack(r, stepped))
		}
		return err
	})
}

// Sockets removes the sockets of ended sandboxes whose runner may not remove them.
func Sockets(run, key string) error { return each(run, key, over, Record.closeSockets) }

func (r Record) closeSockets() (err error) {
	for _, s := range r.Sockets {
		err = errors.Join(err, s.Remove())
	}
	return err
}

// Remove removes the socket, unless another file has taken its place.
func (s Socket) Remove() error {
	now, err := LookSocket(s.Path)
	if errors.Is(err, unix.ENOENT) || err == nil && now != s {
		return nil
	}
	if err == nil {
		err = os.Remove(s.Path)
	}
	if err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

func (d Dir) takeBack(r Record, stepped bool) error {
	fd, err := fsutil.Openat2(unix.AT_FDCWD, d.Path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("restore access to %q: %w", d.Path, err)
	}
	f := os.NewFile(uintptr(fd), d.Path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("restore access to %q: %w", d.Path, err)
	}
	if st.Dev != d.Dev || st.Ino != d.Ino {
		return fmt.Errorf("restore %q: another directory is there now", d.Path)
	}
	terms := d.Terms(stepped)
	if r.IDs != nil {
		terms.Sandbox = func(id uint32) bool { return d.has(r, id) }
	}
	err = upper.Settle(f, terms)
	if errors.Is(err, upper.ErrRights) {
		return errors.Join(err, Close(f))
	}
	return errors.Join(err, d.Reopen(f))
}

// has reports whether an id below the directory can only belong to the sandbox.
func (d Dir) has(r Record, id uint32) bool {
	if d.Shown {
		return id != 0 && id < r.IDs.Size
	}
	return id > r.IDs.Host && id-r.IDs.Host < r.IDs.Size
}

// Close denies access to a directory to all users but its owner and root.
func Close(f *os.File) error {
	defer runtime.KeepAlive(f)
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), st.Mode&0o700)
	}
	if err != nil {
		return fmt.Errorf("close %q to others: %w", f.Name(), err)
	}
	return nil
}

// Reopen restores the mode of a settled directory, if it was changed for the sandbox.
func (d Dir) Reopen(f *os.File) error {
	defer runtime.KeepAlive(f)
	if !d.Restore {
		return nil
	}
	if err := unix.Fchmod(int(f.Fd()), d.Mode); err != nil {
		return fmt.Errorf("restore mode of %q: %w", d.Path, err)
	}
	return nil
}
