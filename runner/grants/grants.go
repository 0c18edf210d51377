// Package grants records, outside of a sandbox, which directories and sockets the caller granted to it. The grants
// can then be taken back even if the runner is killed:
//
//	RUN/grants/KEY-ID        the grants of a sandbox of runner KEY, while it may use them
//	RUN/grants/KEY-ID.over   the same after its end, if the runner may not remove the sockets (real root's)
//
// A record is written with the caller's rights before the sandbox can write: by an ordinary user's runner, which has
// these rights, and otherwise by the client. The runner removes it after the directories are settled (package
// rootfs/upper). The reaper acts on a record with its own rights, which may be
// root's, so a record is valid only if the caller owns it. Real root's runner is not root. It owns the directory, so
// it can remove records, and link or move files of root into it. So each record of real root also has an extended
// attribute that only real root can set. A directory is identified by device and inode, not only by its path.
package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// Subdir is the directory of the records, below a run directory.
const Subdir = "grants"

// over is the suffix of a record whose sandbox has ended.
const over = ".over"

// Record lists the grants of one sandbox.
type Record struct {
	Dirs    []Dir           `json:"dirs,omitempty"`
	Sockets []Socket        `json:"sockets,omitempty"`
	IDs     *runner.IDRange `json:"ids,omitempty"` // the sandbox's ids on the host; nil: known only in its user namespace
}

// Dir is a directory that the sandbox may write to.
type Dir struct {
	Path    string    `json:"path"`
	Dev     uint64    `json:"dev"`
	Ino     uint64    `json:"ino"`
	Mode    uint32    `json:"mode"`
	Owner   uint32    `json:"owner,omitempty"`
	Since   time.Time `json:"since"` // by its file system's clock; zero: unknown
	Access  []byte    `json:"access,omitempty"`
	Default []byte    `json:"default,omitempty"`
	// Restore means that the mode changes for the sandbox's lifetime and must be restored.
	Restore bool `json:"restore,omitempty"`
	// Shown means that ids in the sandbox equal ids on the host. A file of Owner may then be the sandbox's or the
	// caller's.
	Shown bool `json:"shown,omitempty"`
}

// Socket is a socket on which the caller listens for the sandbox.
type Socket struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

// Look describes a directory that is about to be granted. f may be an O_PATH descriptor.
func Look(f *os.File) (Dir, error) {
	d := Dir{Path: f.Name()}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return d, fmt.Errorf("inspect %q: %w", d.Path, err)
	}
	d.Dev, d.Ino, d.Mode, d.Owner = st.Dev, st.Ino, st.Mode&0o7777, st.Uid
	var err error
	if d.Access, d.Default, err = upper.Lists(int(f.Fd())); err != nil {
		return d, fmt.Errorf("inspect %q: %w", d.Path, err)
	}
	d.Since, _ = upper.Now(f) // fails mostly for another user's directory; no ctime is trusted then
	return d, nil
}

// LookSocket describes a newly bound socket.
func LookSocket(path string) (Socket, error) {
	s := Socket{Path: path}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return s, fmt.Errorf("inspect socket %q: %w", path, err)
	}
	s.Dev, s.Ino = st.Dev, st.Ino
	return s, nil
}

// Terms returns the terms for settling d. stepped means that the clock may have been set.
func (d Dir) Terms(stepped bool) upper.Terms {
	t := upper.Terms{Since: d.Since, Stepped: stepped || d.Since.IsZero(), Access: d.Access, Default: d.Default}
	if d.Shown {
		t.Keep = d.Owner
	}
	return t
}

// Write writes a record for runner key into a run directory and returns the record's name.
func (r Record) Write(run, key string) (name string, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	// Unique is enough: the directory is closed to all but the caller and the runner.
	name = key + "-" + strconv.FormatUint(rand.Uint64(), 16)
	dir := filepath.Join(run, Subdir)
	err = put(dir, name, b, true)
	// Not every file system has such files, and AppArmor finds no path of one: see apparmor.d(5), mediate_deleted.
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOENT) {
		err = put(dir, name, b, false)
	}
	if err != nil {
		Remove(run, name)
		return "", fmt.Errorf("write record of shared directories: %w", err)
	}
	return name, nil
}

// put writes the file of a record. With unnamed it has no name (open(2), O_TMPFILE) until it is whole: a reaper that runs at
// the same time never sees a part of a record.
func put(dir, name string, record []byte, unnamed bool) error {
	path, at, how := filepath.Join(dir, name), dir, unix.O_TMPFILE
	if !unnamed {
		at, how = path, unix.O_CREAT|unix.O_EXCL
	}
	// os.OpenFile would ask the poller first, in four more calls.
	fd, err := unix.Open(at, how|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	n, err := unix.Write(fd, record)
	if err == nil && n < len(record) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = mark(fd, dir, name)
	}
	if err == nil && unnamed {
		err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	}
	return errors.Join(err, unix.Close(fd))
}

// markKey names the attribute that a record has in a directory of another user. Its value is the record's name. A
// process in a user namespace cannot set an attribute of the class trusted (xattr(7)), whatever files it can write.
const markKey = "trusted.demesne"

// ofAnother reports whether another user owns the directory of the records: the runner of real root.
func ofAnother(dir fs.FileInfo) bool { return int(dir.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() }

// mark marks a record if its directory needs it. On a file system without such attributes the record stays unmarked,
// and only the runner itself can take back its grants.
func mark(fd int, dir, name string) error {
	st, err := os.Stat(dir)
	if err != nil || !ofAnother(st) {
		return err
	}
	err = unix.Fsetxattr(fd, markKey, []byte(name), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// marked reports whether a record has the mark that its directory needs.
func marked(f, dir *os.File) bool {
	st, err := dir.Stat()
	if err != nil || !ofAnother(st) {
		return err == nil
	}
	var value [256]byte
	n, err := unix.Fgetxattr(int(f.Fd()), markKey, value[:])
	return err == nil && string(value[:n]) == strings.TrimSuffix(f.Name(), over)
}

// Remove removes a record after its grants have ended. It does nothing for an empty name.
func Remove(run, name string) {
	if plain(name) {
		os.Remove(filepath.Join(run, Subdir, name))
	}
}

// Over marks the record of an ended sandbox, see [Sockets].
func Over(run, name string) error {
	if !plain(name) {
		return nil
	}
	path := filepath.Join(run, Subdir, name)
	return os.Rename(path, path+over)
}

// Pending reports whether a marked record still exists.
func Pending(run, name string) bool {
	_, err := os.Lstat(filepath.Join(run, Subdir, name+over))
	return plain(name) && err == nil
}

func plain(name string) bool { return name != "" && !strings.ContainsAny(name, "/.\x00") }

// recordMax bounds the size of a record: the directories and sockets of one message, with access lists.
const recordMax = 16 << 20

// Left reports whether records of a runner exist.
func Left(run, key string) bool {
	dir, names, _ := list(run, key, "")
	dir.Close()
	return len(names) > 0
}

// list opens the directory and returns the names of a runner's records with the suffix end.
func list(run, key, end string) (dir *os.File, names []string, err error) {
	dir, err = os.Open(filepath.Join(run, Subdir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list records of shared directories: %w", err)
	}
	names, err = dir.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, key+"-") || !strings.HasSuffix(n, end) })
	return dir, names, err
}

// each calls do for each record of a runner that the caller wrote, and removes the records, except where do may succeed later.
func each(run, key, end string, do func(Record) error) error {
	dir, names, err := list(run, key, end)
	if dir != nil {
		defer dir.Close()
	}
	for _, name := range names {
		r, rerr := readOne(dir, name)
		if rerr == nil {
			rerr = do(r)
		}
		err = errors.Join(err, rerr)
		if !fsutil.Short(rerr) {
			unix.Unlinkat(int(dir.Fd()), name, 0)
		}
	}
	return err
}

func readOne(dir *os.File, name string) (r Record, err error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, fmt.Errorf("read record %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return r, err
	}
	if !st.Mode().IsRegular() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() || !marked(f, dir) {
		return r, fmt.Errorf("read record %q: not written by the caller", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, recordMax))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read record %q: %w", name, err)
	}
	return r, nil
}
