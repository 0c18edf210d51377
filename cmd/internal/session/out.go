package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/manifest"
	"demesne/cmd/internal/outputs"
	"demesne/internal/fsutil"
)

// ownerOnly is the mode of output directories. If other users could reach /out, a sandbox on an image could not
// be allowed to set the set-user-ID bits that packages come with.
const ownerOnly = 0o700

// outDir is an output directory. Once a sandbox can write in it, only the descriptor is used, never the path.
// While the descriptor is open, the directory is in use.
type outDir struct {
	path string
	dir  *os.File
}

// newOut creates an output directory with a unique name that cannot be guessed.
func newOut(root string) (*outDir, error) {
	path := filepath.Join(root, newUUID())
	if err := os.Mkdir(path, ownerOnly); err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	dir, err := outputs.Hold(path)
	if err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	if err := mark(root, filepath.Base(path)); err != nil {
		dir.Close()
		os.Remove(path)
		return nil, err
	}
	return &outDir{path, dir}, nil
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (o *outDir) name() string { return filepath.Base(o.path) }

func (o *outDir) close() { o.dir.Close() }

// record writes the directory's manifest and returns its path. The sandbox must be gone. record returns "" if
// it fails, because a result is valid without a manifest (the disk may be full).
func (o *outDir) record() string {
	root, err := os.OpenRoot(fsutil.FDPath(int(o.dir.Fd())))
	if err != nil {
		return ""
	}
	defer root.Close()
	m, err := manifest.Make(root)
	path := manifest.Path(o.path)
	if err != nil || m.Write(path) != nil {
		return ""
	}
	return path
}

// undo removes the directory unless it has entries.
func (o *outDir) undo() {
	o.dir.Close()
	if os.Remove(o.path) == nil {
		unmark(filepath.Dir(o.path), o.name())
	}
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
