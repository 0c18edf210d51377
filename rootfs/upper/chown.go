package upper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/openat"
)

// SettleMost bounds how many changed files one directory may have: each costs a walk microseconds, and memory
// where directories are nested.
const SettleMost = 1 << 20

// ErrTooMany says that more than SettleMost files changed. Those after them were not settled.
var ErrTooMany = errors.New("too many files changed")

// ErrRights says that what is in a directory may still give others rights, as it could not be settled: others should
// not be let in.
var ErrRights = errors.New("files in it may still give others rights")

// Terms says which files of a directory Settle touches.
type Terms struct {
	// Since is when the directory was given, by the clock of its file system, see [Now]. What changed before
	// that, by its ctime, which no system call sets back, is left as it is. Zero: everything changed.
	Since time.Time
	// Stepped says that the clock may have been set meanwhile: a ctime proves nothing then, and no regular file
	// that the process may change keeps a set-user-ID or set-group-ID bit or a capability.
	Stepped bool
	// Sandbox tells the sandbox's user and group ids from those of others. It is nil in the user namespace of
	// the sandbox's runner, where every other id is not mapped and so cannot be changed.
	Sandbox func(id uint32) bool
	// Keep is a user whose files keep their owner: they may be a sandbox's or not. 0: none.
	Keep uint32
	// Access and Default are the access lists that the directory had when it was given.
	Access, Default []byte
	// Most is how many files may have changed; 0: SettleMost.
	Most int
}

// Now returns the time by the clock that the file system of a directory stamps ctimes with: no clock of this
// machine where that is a network's. It leaves a new ctime on the directory. The directory may be an O_PATH descriptor.
func Now(dir *os.File) (time.Time, error) {
	defer runtime.KeepAlive(dir)
	fd := int(dir.Fd())
	st, err := stat(fd, "")
	if err == nil && (st.Mode&unix.S_ISGID != 0 || chmod(fd, st.Mode) != nil) { // setgid could be lost, or the directory is another's
		if fd, err = unix.Openat(fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
			defer unix.Close(fd)
		}
	}
	if err == nil {
		st, err = stat(fd, "")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read clock of %q: %w", dir.Name(), err)
	}
	return changed(st), nil
}

func changed(st *unix.Statx_t) time.Time { return time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)) }

// Settle makes what a sandbox left in a directory the caller's: its owner is the process, no file has a setuid,
// setgid or sticky bit or a capability, no directory a setuid or setgid bit, and neither an access list that the sandbox
// made. Other mode bits stay, and so do access lists that only repeat what the directory's own gave. It must run when no
// process of the sandbox is alive. Files of others are left alone. Links are given an owner and not
// followed. Fifos and sockets stay: they do no harm until they are opened. It goes on after a failure and
// returns the first. That an owner could not be changed is one; any other is an ErrRights.
func Settle(dir *os.File, t Terms) error {
	s := settling{Terms: t, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	s.walk.visit, s.walk.foreign = s.visit, s.foreign
	if s.Most == 0 {
		s.Most = SettleMost
	}
	err := s.walk.run(dir)
	runtime.KeepAlive(dir)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRights, err)
	}
	if err = errors.Join(err, s.owners); err != nil {
		return fmt.Errorf("settle %q: %w", dir.Name(), err)
	}
	return nil
}

// overflowID is what an owner that is not mapped looks like, and also nobody's own id.
const overflowID = 65534

type settling struct {
	Terms
	walk     walk
	uid, gid uint32 // the caller's, as this process sees them
	changed  int
	owners   error // the first that could not be changed
}

// of says whether an id is one that only a sandbox has. In the runner's user namespace that shows when it is tried.
func (s *settling) of(id, own uint32) bool {
	if s.Sandbox != nil {
		return s.Sandbox(id)
	}
	return id != own
}

func (s *settling) foreign(uid uint32) bool {
	if s.Sandbox == nil {
		return uid == overflowID
	}
	return uid != s.uid && !s.Sandbox(uid)
}

// todo is what is to be done about one file.
type todo struct {
	owner bool
	bits  uint16
	attrs []string
}

func (s *settling) visit(at int, name string, st *unix.Statx_t) error {
	kind := st.Mode & unix.S_IFMT
	recent := !changed(st).Before(s.Since)
	if !recent && !(s.Stepped && kind == unix.S_IFREG) || s.Sandbox != nil && s.foreign(st.Uid) {
		return nil
	}
	var d todo
	if recent {
		if s.changed++; s.changed > s.Most {
			s.walk.enough = true
			return fmt.Errorf("%w: more than %d", ErrTooMany, s.Most)
		}
		d.owner = s.of(st.Uid, s.uid) || st.Gid != overflowID && s.of(st.Gid, s.gid)
		d.owner = d.owner && (s.Keep == 0 || st.Uid != s.Keep)
	}
	switch kind {
	case unix.S_IFLNK:
	case unix.S_IFDIR:
		d.bits = st.Mode & (unix.S_ISUID | unix.S_ISGID)
	default:
		d.bits = st.Mode & (unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX)
	}
	var err error
	if kind != unix.S_IFLNK {
		d.attrs, err = s.attributes(at, name, recent)
	}
	if !d.owner && d.bits == 0 && len(d.attrs) == 0 {
		return err
	}
	return errors.Join(err, s.do(at, name, st, d))
}

// do opens what name is now, without following it, and changes it if that is still the file that was looked at.
func (s *settling) do(at int, name string, st *unix.Statx_t, d todo) error {
	fd, err := unix.Openat2(at, pathOrSelf(name), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	now, err := stat(fd, "")
	if err == nil && idOf(now) != idOf(st) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	err = s.change(fd, now, d)
	if now.Uid == overflowID && errors.Is(err, unix.EPERM) {
		return nil // another's
	}
	return err
}

// change does it. The owner goes first: that takes setuid bits and capabilities away, and never gives them back.
func (s *settling) change(fd int, st *unix.Statx_t, d todo) (err error) {
	if d.owner {
		err := unix.Fchownat(fd, "", int(s.uid), int(s.gid), unix.AT_EMPTY_PATH)
		if another := st.Uid == overflowID && err == unix.EPERM || err == unix.EOVERFLOW; another {
			return nil
		} else if err != nil && s.owners == nil {
			s.owners = fmt.Errorf("chown: %w", err)
		}
	}
	mode := st.Mode &^ d.bits
	for _, key := range d.attrs {
		if key == aclAccess {
			mode = mode&^0o070 | groupOf(fd)<<3
		}
	}
	if mode != st.Mode {
		err = errors.Join(err, chmod(fd, mode))
	}
	for _, key := range d.attrs {
		if rerr := unix.Removexattr(openat.Path(fd), key); rerr != nil && rerr != unix.ENODATA {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", key, rerr))
		}
	}
	return err
}

// chmod changes the mode of what a descriptor is, also one that only names it.
func chmod(fd int, mode uint16) error {
	bits := uint32(mode &^ unix.S_IFMT)
	err := unix.Fchmodat(fd, "", bits, unix.AT_EMPTY_PATH)
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EINVAL { // before 6.6
		err = unix.Chmod(openat.Path(fd), bits)
	}
	if err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// pathOrSelf is for calls that know no AT_EMPTY_PATH.
func pathOrSelf(name string) string {
	if name == "" {
		return "."
	}
	return name
}
