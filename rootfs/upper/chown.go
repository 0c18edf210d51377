package upper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// settleMost bounds how many changed files one directory may have. Each costs a few microseconds of a walk, and
// memory if directories are nested.
const settleMost = 1 << 20

// ErrTooMany reports that more than settleMost files changed. The files after those were not settled.
var ErrTooMany = errors.New("too many files changed")

// ErrRights reports that files in a directory may still give other users rights, as the directory could not be
// settled. Other users should get no access to it.
var ErrRights = errors.New("files in it may still grant access to other users")

// Terms says which files of a directory Settle changes.
type Terms struct {
	// Since is when the directory was given to the sandbox, by the clock of its file system; see [Now]. Files with
	// an earlier ctime, which no system call can set back, are left unchanged. Zero: every file counts as changed.
	Since time.Time
	// Stepped means that the clock may have been set meanwhile, so that a ctime proves nothing. Then Settle clears
	// set-user-ID bits, set-group-ID bits and capabilities on every regular file that the process may change.
	Stepped bool
	// Sandbox reports whether a user or group id belongs to the sandbox. It is nil in the user namespace of the
	// sandbox's runner, where every other id is not mapped and therefore cannot be changed.
	Sandbox func(id uint32) bool
	// Keep is a user whose files keep their owner, as they may be the sandbox's or not. 0: no such user.
	Keep uint32
	// Access and Default are the access lists that the directory had before the sandbox got access.
	Access, Default []byte
	// Most is the maximum number of changed files; 0: settleMost.
	Most int
}

// Now returns the time by the clock that stamps the ctimes of a directory's file system. On a network file system
// this is not a clock of this machine. Now gives the directory a new ctime. The directory may be an O_PATH
// descriptor.
func Now(dir *os.File) (time.Time, error) {
	defer runtime.KeepAlive(dir)
	fd := int(dir.Fd())
	st, err := stat(fd, "")
	if err == nil && (st.Mode&unix.S_ISGID != 0 || chmod(fd, st.Mode) != nil) { // setgid could be lost, or another user owns the directory
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

// changed returns a UTC time: to encode a local one would load the machine's time zone.
func changed(st *unix.Statx_t) time.Time { return time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)).UTC() }

// Settle hands what a sandbox wrote in a directory over to the caller. The process becomes the owner of the files.
// Files lose setuid, setgid and sticky bits and capabilities, and directories lose setuid and setgid bits. Both
// lose access lists that the sandbox made. Other mode bits stay, and so do access lists that only repeat what the
// directory's own list granted.
//
// Call Settle when no process of the sandbox is alive. It leaves files of other users alone. It changes the owner
// of links without following them. Fifos and sockets stay, as they do no harm until they are opened. After a
// failure Settle continues and returns the first error. Failure to change an owner is reported as is; any other
// error is an ErrRights.
func Settle(dir *os.File, t Terms) error {
	s := settling{Terms: t, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	s.walk.visit, s.walk.foreign = s.visit, s.foreign
	if s.Most == 0 {
		s.Most = settleMost
	}
	err := s.walk.run(dir)
	runtime.KeepAlive(dir)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRights, err)
	}
	if err = errors.Join(err, s.owners); err != nil {
		return fmt.Errorf("change owner of files in %q: %w", dir.Name(), err)
	}
	return nil
}

// overflowID is shown as the owner if the real one is not mapped. A file may also really have it.
const overflowID = 65534

type settling struct {
	Terms
	walk     walk
	uid, gid uint32 // the caller's, as this process sees them
	changed  int
	owners   error // the first failure to change an owner
}

// of reports whether the id is one to take over. In the runner's user namespace it returns true for every other id, and
// the attempt to change the owner decides.
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

// todo holds the changes to make to one file.
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

// do opens name without following it, and changes the file if it is still the one that was checked.
func (s *settling) do(at int, name string, st *unix.Statx_t, d todo) error {
	fd, err := fsutil.Openat2(at, pathOrSelf(name), &unix.OpenHow{
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
		return nil // another user's file
	}
	return err
}

// change makes the changes. It sets the owner first: that clears setuid bits and capabilities, and never sets them.
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
		if rerr := unix.Removexattr(fsutil.FDPath(fd), key); rerr != nil && rerr != unix.ENODATA {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", key, rerr))
		}
	}
	return err
}

// chmod changes the mode of an open file, even of an O_PATH descriptor.
func chmod(fd int, mode uint16) error {
	bits := uint32(mode &^ unix.S_IFMT)
	err := unix.Fchmodat(fd, "", bits, unix.AT_EMPTY_PATH)
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EINVAL { // before 6.6
		err = unix.Chmod(fsutil.FDPath(fd), bits)
	}
	if err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// pathOrSelf returns name, or "." for calls without AT_EMPTY_PATH.
func pathOrSelf(name string) string {
	if name == "" {
		return "."
	}
	return name
}
