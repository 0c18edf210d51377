package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// ownerOnly is the mode of directories made for outputs. If other users could reach /out, a sandbox on an image could
// not be allowed to set the set-user-ID bits that packages come with.
const ownerOnly = 0o700

// outDir is the directory at /out. Once a sandbox can write in it, only the descriptor is used, never the path. While
// the descriptor is open, the directory is in use.
type outDir struct {
	path   string // absolute, without symbolic links
	dir    *os.File
	fresh  bool     // made here, below the output root
	made   []string // directories that undo removes
	unmark func()
}

// elsewhere adds a hint to an error of the output root: how to choose another directory.
func elsewhere(err error) error {
	return text.Hinted(err, "set --out DIR for this run, or DEMESNE_OUTPUT_ROOT for all runs")
}

// OutputName returns a name for an output directory. It is unique, and sorts by time.
func OutputName() string {
	return stamped(time.Now(), fmt.Sprintf("%0*x", randomDigits, rand.Uint32()))
}

// isOurs reports whether name names an output directory, or the directory of a sandbox's downloads: its id.
func isOurs(name string) bool {
	random, digits := name, 12
	if stamp, rest, ok := strings.Cut(name, "-"); ok {
		var clock string
		clock, random, _ = strings.Cut(rest, "-")
		if _, err := time.Parse("20060102150405", stamp+clock); err != nil || len(stamp) != 8 {
			return false
		}
		digits = randomDigits
	}
	return len(random) == digits && strings.Trim(random, "0123456789abcdef") == ""
}

// hold opens the directory and marks it as in use. On a file system without locks only the sandbox itself does so.
func (o *outDir) hold() (err error) {
	if o.dir, err = os.OpenFile(o.path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
		flock.Try(o.dir, flock.Shared)
	}
	return fsutil.Reason(err)
}

// name returns a name that no other run has.
func (o *outDir) name() string {
	if o.fresh {
		return filepath.Base(o.path)
	}
	return OutputName()
}

// mkdirAll is os.MkdirAll that records the directories it creates.
func (o *outDir) mkdirAll(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := o.mkdirAll(parent); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, ownerOnly)
	if err == nil {
		o.made = append(o.made, path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return fsutil.Reason(err)
}

func (o *outDir) close() { o.dir.Close() }

// undo removes what outputs.open made. It never removes a directory that is not empty. o may be nil.
func (o *outDir) undo() {
	if o == nil {
		return
	}
	o.dir.Close()
	for i := len(o.made) - 1; i >= 0; i-- {
		if unix.Rmdir(o.made[i]) != nil {
			break // in use by another process
		}
		if i == len(o.made)-1 {
			o.unmark()
		}
	}
	o.made = nil
}

// removeEmpty removes a directory that was made here, if it is empty.
func (o *outDir) removeEmpty() bool {
	if !o.fresh || unix.Rmdir(o.path) != nil {
		return false
	}
	o.unmark()
	return true
}

// writableDir resolves path, and checks that it is a directory that the caller can write to. It rejects the root
// directory.
func writableDir(path string) (string, error) {
	real, err := fsutil.EvalSymlinks(path)
	if err != nil {
		return "", fsutil.Reason(err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fsutil.Reason(err)
	}
	if err := printable(real); err != nil {
		return "", err
	}
	switch {
	case !info.IsDir():
		return "", errors.New("is not a directory")
	case real == "/":
		return "", errors.New("is the root directory")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, real, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", fmt.Errorf("is not writable: %w", err)
	}
	return real, nil
}

// printable rejects names that are not UTF-8: JSON, which carries them to the runner and in receipts, would alter
// them. Names below a directory may have any bytes.
func printable(names ...string) error {
	for _, n := range names {
		if !utf8.ValidString(n) {
			return text.Hinted(fmt.Errorf("%q is not UTF-8", n), "pass a directory above it; files inside it may have such names")
		}
	}
	return nil
}

// workspaceDir checks the host directory of a workspace; empty: none.
func workspaceDir(arg string) (string, error) {
	if arg == "" {
		return "", nil
	}
	abs, err := filepath.Abs(arg)
	if err == nil {
		abs, err = writableDir(abs)
	}
	if err != nil {
		return "", fmt.Errorf("workspace %q: %w", arg, err)
	}
	return abs, nil
}

// asides bounds how many entries of one name are kept.
const asides = 100

// place links f, which may be unnamed, into o as name. An entry that the sandbox put there is not followed or
// overwritten: it is renamed to NAME.1, or the next free number.
func (o *outDir) place(f *os.File, name string) error {
	dir := int(o.dir.Fd())
	for range asides {
		err := linkOrCopy(f, dir, name)
		if !errors.Is(err, unix.EEXIST) {
			return wrapPlace(name, err)
		}
		if err := aside(dir, name); err != nil {
			return wrapPlace(name, err)
		}
	}
	return wrapPlace(name, unix.EEXIST)
}

func wrapPlace(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("keep %s: %w", name, err)
	}
	return err
}

func aside(dir int, name string) error {
	for n := 1; ; n++ {
		err := unix.Renameat2(dir, name, dir, fmt.Sprintf("%s.%d", name, n), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST || n == asides {
			return err
		}
	}
}

// linkOrCopy links f into dir as name. If the file systems do not allow that, it copies f.
func linkOrCopy(f *os.File, dir int, name string) error {
	err := unix.Linkat(unix.AT_FDCWD, fsutil.FDPath(int(f.Fd())), dir, name, unix.AT_SYMLINK_FOLLOW)
	if err == nil || err == unix.EEXIST {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(to, io.NewSectionReader(f, 0, 1<<62))
	return errors.Join(err, to.Close())
}

// nameless creates an unnamed file, on the file system of dir if that supports O_TMPFILE.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "output"), nil
	}
	f, err := os.CreateTemp("", "demesne-output")
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	return f, os.Remove(f.Name())
}
