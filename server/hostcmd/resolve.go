package hostcmd

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// File is a file or directory as a request found it. The zero value is not a file.
type File struct {
	Path  string `json:"path"` // without links
	Dev   uint64 `json:"dev,omitempty"`
	Inode uint64 `json:"inode,omitempty"` // 0: it did not exist
	Mode  uint32 `json:"mode,omitempty"`
	Size  int64  `json:"size,omitempty"`
	CTime int64  `json:"ctime,omitempty"` // in nanoseconds
	Sum   string `json:"sum,omitempty"`   // SHA-256 of a program that had changed just before
}

var (
	errChanged = errors.New("changed since it was asked for")
	errSpecial = errors.New("not a file of a disk")
)

// open opens a path without links, for operations only by descriptor (O_PATH).
func open(path string) (*os.File, error) {
	fd, err := fsutil.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func fileOf(f *os.File) (File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return File{}, err
	}
	return File{Path: f.Name(), Dev: uint64(st.Dev), Inode: st.Ino, Mode: st.Mode, Size: st.Size, CTime: st.Ctim.Nano()}, nil
}

// reopen opens the file again if it is the one that w describes. same checks what else must not have changed.
func (w File) reopen(same func(was, is File) bool) (*os.File, error) {
	f, err := open(w.Path)
	if err != nil {
		return nil, err
	}
	is, err := fileOf(f)
	if err == nil && (is.Dev != w.Dev || is.Inode != w.Inode || is.Mode&unix.S_IFMT != w.Mode&unix.S_IFMT || !same(w, is)) {
		err = fmt.Errorf("%q: %w", w.Path, errChanged)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sameContent also compares the time of the last change, which no program can set, and the mode.
func (was File) sameContent(is File) bool {
	return was.Size == is.Size && was.CTime == is.CTime && was.Mode == is.Mode
}

// settled is the age from which on any later change of a file has another time. Two changes within a tick of the kernel's clock have
// the same one.
const settled = 2 * time.Second

// maxProgram bounds a program whose sum is needed, in bytes.
const maxProgram = 256 << 20

// stamped returns a program with its sum, if its time does not yet tell changes apart.
func (w File) stamped(now time.Time) (File, error) {
	if time.Unix(0, w.CTime).Before(now.Add(-settled)) {
		return w, nil
	}
	f, err := w.reopen(File.sameContent)
	if err != nil {
		return w, err
	}
	defer f.Close()
	w.Sum, err = sumOf(f)
	return w, err
}

// sumOf returns the SHA-256 of the file of an O_PATH descriptor.
func sumOf(f *os.File) (string, error) {
	from, err := readable(f)
	if err != nil {
		return "", err
	}
	defer from.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(from, maxProgram+1)); err != nil || n > maxProgram {
		return "", cmp.Or(err, fmt.Errorf("changed just now, and has more than %d bytes", maxProgram))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// reopenProgram opens the program if it has not changed.
func (w File) reopenProgram() (*os.File, error) {
	f, err := w.reopen(File.sameContent)
	if err != nil || w.Sum == "" {
		return f, err
	}
	if sum, err := sumOf(f); err != nil || sum != w.Sum {
		f.Close()
		return nil, cmp.Or(err, fmt.Errorf("%q: %w", w.Path, errChanged))
	}
	return f, nil
}

// sameFile accepts changes of the content.
func (File) sameFile(File) bool { return true }

func (w File) is(kind uint32) bool { return w.Mode&unix.S_IFMT == kind }

// resolve finds a file and follows links once. For a file that does not exist, its directory is resolved; then the inode is 0.
func resolve(given string) (File, error) {
	switch {
	case !filepath.IsAbs(given):
		return File{}, fmt.Errorf("path %q is not absolute", given)
	case strings.ContainsRune(given, 0) || len(given) > maxWord || !utf8.ValidString(given):
		return File{}, errors.New("the path is too long, has a NUL byte, or is not UTF-8")
	}
	clean := filepath.Clean(given)
	real, err := filepath.EvalSymlinks(clean)
	if errors.Is(err, os.ErrNotExist) {
		if real, err = filepath.EvalSymlinks(filepath.Dir(clean)); err == nil {
			if _, lerr := os.Lstat(clean); lerr == nil {
				return File{}, fmt.Errorf("%q is a link that leads nowhere", given)
			}
			return File{Path: filepath.Join(real, filepath.Base(clean))}, nil
		}
	}
	if err != nil {
		return File{}, err
	}
	if !utf8.ValidString(real) { // a person could not tell it from others
		return File{}, fmt.Errorf("%q leads to a name that is not UTF-8", given)
	}
	f, err := open(real)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return fileOf(f)
}

// program finds the program of a command on the operator's path.
func program(name string, path []string) (File, error) {
	if filepath.IsAbs(name) {
		return runnable(name)
	}
	for _, dir := range path {
		if f, err := runnable(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
	return File{}, fmt.Errorf("program %q: not found in %s", name, strings.Join(path, ":"))
}

// runnable refuses a program that another user could replace.
func runnable(path string) (File, error) {
	f, err := resolve(path)
	if err != nil {
		return f, err
	}
	if f.Inode == 0 {
		return f, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	if !f.is(unix.S_IFREG) || f.Mode&0o111 == 0 {
		return f, fmt.Errorf("program %q: not an executable file", path)
	}
	for at := f.Path; ; at = filepath.Dir(at) {
		if err := guarded(at); err != nil {
			return f, fmt.Errorf("program %q: %w", path, err)
		}
		if at == "/" {
			return f, nil
		}
	}
}

// guarded refuses a file or directory that users other than root and this one can change.
func guarded(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
	switch {
	case st.Mode&0o002 != 0 && !sticky:
		return fmt.Errorf("every user can write %q", path)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid() && !foreign(st.Uid):
		return fmt.Errorf("%q belongs to another user", path)
	}
	return nil
}

// foreign reports whether uid stands for all users outside of this user namespace, such as the host's root.
func foreign(uid uint32) bool {
	const overflow = 65534
	m, err := os.ReadFile("/proc/self/uid_map")
	return uid == overflow && err == nil && strings.Join(strings.Fields(string(m)), " ") != "0 0 4294967295"
}

// kernelPlaces are directories whose files are not on a disk: processes' memory and environments, devices.
var kernelPlaces = []string{"/proc", "/sys", "/dev"}

// kernelFiles are the file systems that have such files, wherever they are mounted.
var kernelFiles = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.CGROUP2_SUPER_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.NSFS_MAGIC: true,
}

// onDisk refuses a file of a kernel's file system.
func onDisk(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if kernelFiles[int64(st.Type)] {
		return errSpecial
	}
	return nil
}

// readable returns a descriptor that reads the file of an O_PATH descriptor.
func readable(f *os.File) (*os.File, error) {
	return os.OpenFile(fsutil.FDPath(int(f.Fd())), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
