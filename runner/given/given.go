// Package given records, outside of a sandbox, which directories and sockets of the caller a sandbox was given, so that
// they can be taken back though its runner was killed:
//
//	RUN/given/KEY-ID        one sandbox's of the runner KEY, while it may write there
//	RUN/given/KEY-ID.over   the same when it has ended, and its runner may not remove the sockets: real root's
//
// The client writes a record with the caller's rights before the sandbox exists; the runner removes it when the
// directories are settled (package rootfs/upper). What a record asks for is done with the reaper's rights, which may be root's, so
// it counts only if the caller owns it: real root's runner, which is not root, owns the directory and so can remove
// records, but cannot make one. A directory is known by its device and inode and not by its path alone.
package given

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/upper"
	"demesne/runner"
)

// Subdir is where records are, below a run directory.
const Subdir = "given"

// over is how the name of a record ends whose sandbox has ended.
const over = ".over"

// Record is what one sandbox was given.
type Record struct {
	Dirs    []Dir           `json:"dirs,omitempty"`
	Sockets []Socket        `json:"sockets,omitempty"`
	IDs     *runner.IDRange `json:"ids,omitempty"` // of the sandbox, on the host; nil: only its user namespace tells
}

// Dir is a directory that the sandbox may write to.
type Dir struct {
	Path    string    `json:"path"`
	Dev     uint64    `json:"dev"`
	Ino     uint64    `json:"ino"`
	Mode    uint32    `json:"mode"`
	Owner   uint32    `json:"owner,omitempty"`
	Since   time.Time `json:"since"` // by its file system's clock; zero: not known
	Access  []byte    `json:"access,omitempty"`
	Default []byte    `json:"default,omitempty"`
	// Restore says that its mode is to be put back: it is changed while the sandbox lives.
	Restore bool `json:"restore,omitempty"`
	// Shown says that ids are on the host what they are inside: files of its owner may be the sandbox's or not.
	Shown bool `json:"shown,omitempty"`
}

// Socket is one that the caller listens on for the sandbox.
type Socket struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

// Look describes a directory that is about to be given. f may be an O_PATH descriptor.
func Look(f *os.File) (Dir, error) {
	d := Dir{Path: f.Name()}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return d, fmt.Errorf("look at %q: %w", d.Path, err)
	}
	d.Dev, d.Ino, d.Mode, d.Owner = st.Dev, st.Ino, st.Mode&0o7777, st.Uid
	var err error
	if d.Access, d.Default, err = upper.Lists(int(f.Fd())); err != nil {
		return d, fmt.Errorf("look at %q: %w", d.Path, err)
	}
	d.Since, _ = upper.Now(f) // another's, most likely: then no ctime is believed
	return d, nil
}

// LookSocket describes a socket that was just bound.
func LookSocket(path string) (Socket, error) {
	s := Socket{Path: path}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return s, fmt.Errorf("look at socket %q: %w", path, err)
	}
	s.Dev, s.Ino = st.Dev, st.Ino
	return s, nil
}

// Terms are what its directory is settled by.
func (d Dir) Terms(stepped bool) upper.Terms {
	t := upper.Terms{Since: d.Since, Stepped: stepped || d.Since.IsZero(), Access: d.Access, Default: d.Default}
	if d.Shown {
		t.Keep = d.Owner
	}
	return t
}

// Write writes a record of a runner's into a run directory and returns its name.
func (r Record) Write(run, key string) (name string, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	var id [8]byte
	rand.Read(id[:])
	name = key + "-" + hex.EncodeToString(id[:])
	f, err := os.OpenFile(filepath.Join(run, Subdir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("record what is given: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		Remove(run, name)
		return "", fmt.Errorf("record what is given: %w", err)
	}
	return name, nil
}

// Remove removes a record: nothing of it is given any more. It does nothing for an empty name.
func Remove(run, name string) {
	if plain(name) {
		os.Remove(filepath.Join(run, Subdir, name))
	}
}

// Over marks a record whose sandbox has ended, see [Sockets].
func Over(run, name string) error {
	if !plain(name) {
		return nil
	}
	path := filepath.Join(run, Subdir, name)
	return os.Rename(path, path+over)
}

// Pending says whether a record that was marked is still there.
func Pending(run, name string) bool {
	_, err := os.Lstat(filepath.Join(run, Subdir, name+over))
	return plain(name) && err == nil
}

func plain(name string) bool { return name != "" && !strings.ContainsAny(name, "/.\x00") }

// recordMax bounds a record's size: two directories and the sockets of one message.
const recordMax = 1 << 20

// Left says whether there are records of a runner.
func Left(run, key string) bool {
	dir, names, _ := list(run, key, "")
	dir.Close()
	return len(names) > 0
}

// list opens the directory and returns the names of a runner's records in it, which end as is said.
func list(run, key, end string) (dir *os.File, names []string, err error) {
	dir, err = os.Open(filepath.Join(run, Subdir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list what is given: %w", err)
	}
	names, err = dir.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, key+"-") || !strings.HasSuffix(n, end) })
	return dir, names, err
}

// each does what is to be done about each record of a runner that the caller wrote, and removes it.
func each(run, key, end string, do func(Record) error) error {
	dir, names, err := list(run, key, end)
	defer dir.Close()
	for _, name := range names {
		r, rerr := readOne(dir, name)
		if rerr == nil {
			rerr = do(r)
		}
		err = errors.Join(err, rerr)
		unix.Unlinkat(int(dir.Fd()), name, 0)
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
	if !st.Mode().IsRegular() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return r, fmt.Errorf("read record %q: not a file of the caller's", name)
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
