package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// A dir is a directory of a tree under construction. Names are relative to it, and chosen by this package. The
// files that an image has under these names are untrusted, but no untrusted program runs yet that could change
// them.
type dir struct {
	fd    int
	at    string // its name in errors, with a slash at the end
	umask uint32 // mode bits that the kernel clears, restored where they matter
}

// mkdir makes a directory unless it exists. It replaces a file that is not a directory.
func (d dir) mkdir(name string, mode uint32) error {
	if err := fsutil.MkdirAt(d.fd, name, mode); err != nil {
		return fmt.Errorf("make %s%s: %w", d.at, name, err)
	}
	if mode&d.umask == 0 {
		return nil
	}
	return d.chmod(name, mode)
}

func (d dir) symlink(target, name string) error {
	if err := unix.Symlinkat(target, d.fd, name); err != nil {
		return fmt.Errorf("link %s%s: %w", d.at, name, err)
	}
	return nil
}

// write makes a file that every user may read.
func (d dir) write(name string, content []byte) error {
	const mode = 0o644
	if len(content) == 0 {
		return d.touch(name, mode)
	}
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return fmt.Errorf("make %s%s: %w", d.at, name, err)
	}
	defer unix.Close(fd)
	if mode&d.umask != 0 {
		if err := unix.Fchmod(fd, mode); err != nil {
			return fmt.Errorf("chmod %s%s: %w", d.at, name, err)
		}
	}
	for len(content) > 0 {
		n, err := unix.Write(fd, content)
		if err != nil {
			return fmt.Errorf("write %s%s: %w", d.at, name, err)
		}
		content = content[n:]
	}
	return nil
}

// touch makes an empty file without opening it. A writable descriptor would keep [plan.seal] from making the mount
// read-only (EBUSY). So would its copy in a process that another goroutine has forked, until that process's execve.
func (d dir) touch(name string, mode uint32) error {
	err := unix.Mknodat(d.fd, name, unix.S_IFREG|mode, 0)
	if err == unix.EEXIST {
		if err = d.remove(name); err == nil {
			err = unix.Mknodat(d.fd, name, unix.S_IFREG|mode, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("make %s%s: %w", d.at, name, err)
	}
	if mode&d.umask == 0 {
		return nil
	}
	return d.chmod(name, mode)
}

// remove removes a file that is not a directory; it ignores a missing one.
func (d dir) remove(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// learnUmask makes a directory of mode 1777 and checks which bits are missing. The only other way to learn a
// process's umask is to change it, for every thread.
func (d *dir) learnUmask(name string) error {
	d.umask = 0
	if err := d.mkdir(name, 0o1777); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat %s%s: %w", d.at, name, err)
	}
	d.umask = 0o777 &^ st.Mode
	if d.umask == 0 {
		return nil
	}
	return d.chmod(name, 0o1777)
}

func (d dir) chmod(name string, mode uint32) error {
	if err := unix.Fchmodat(d.fd, name, mode, 0); err != nil {
		return fmt.Errorf("chmod %s%s: %w", d.at, name, err)
	}
	return nil
}

// own gives a directory to the user. An id that is not mapped here is one that the sandbox's own user namespace
// maps onto the caller's, so the user owns the directory already.
func (d dir) own(name string, u User) error {
	if u == (User{}) {
		return nil
	}
	err := unix.Fchownat(d.fd, name, int(u.UID), int(u.GID), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.EINVAL {
		return fmt.Errorf("chown %s%s: %w", d.at, name, err)
	}
	return nil
}

// absent reports whether an error means that a file of the host is missing, or not accessible to this process.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP)
}
