package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/images"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// importDirectory makes a layer from a directory.
func importDirectory(ctx context.Context, store *images.Store, dir string, notice func(string)) (oci.Layer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return oci.Layer{}, err
	}
	defer root.Close()
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.CloseWithError(writeTree(ctx, root, in, notice))
	}()
	layer, err := putLayer(ctx, store, out, plain)
	out.CloseWithError(err)
	<-done
	return layer, err
}

// writeTree writes the tree under root as a tar archive. Entries are sorted by name, so that the same tree
// always makes the same layer.
func writeTree(ctx context.Context, root *os.Root, w io.Writer, notice func(string)) error {
	t := &tree{ctx: ctx, tar: tar.NewWriter(w), notice: notice, links: map[inode]string{}, uid: os.Geteuid(), gid: os.Getegid()}
	st, err := root.Stat(".")
	if err != nil {
		return err
	}
	t.dev = st.Sys().(*syscall.Stat_t).Dev
	if err := t.directory(root, ".", st); err != nil {
		return err
	}
	return t.tar.Close()
}

type inode struct{ dev, ino uint64 }

// tree writes a directory tree to a tar archive.
type tree struct {
	ctx      context.Context
	tar      *tar.Writer
	notice   func(string)
	links    map[inode]string // first name of each file with several names
	dev      uint64           // device of the root
	uid, gid int              // ids of the caller, written as root's, as in a user namespace
}

// directory writes a directory and its contents. Each level is opened as an [os.Root] of its own.
func (t *tree) directory(root *os.Root, name string, st fs.FileInfo) error {
	self, err := root.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	h := t.header(name, st)
	h.Typeflag, h.Name = tar.TypeDir, name+"/"
	if err := t.write(h, self); err != nil {
		return err
	}
	if st.Sys().(*syscall.Stat_t).Dev != t.dev {
		t.notice(fmt.Sprintf("%q is another file system: left empty", name))
		return nil
	}
	entries, err := self.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(entries)
	for _, e := range entries {
		if err := t.entry(root, e, path.Join(name, e)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) entry(root *os.Root, base, name string) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	st, err := root.Lstat(base)
	if err != nil {
		return err
	}
	h := t.header(name, st)
	switch st.Mode().Type() {
	case fs.ModeDir:
		sub, err := root.OpenRoot(base)
		if err != nil {
			return err
		}
		defer sub.Close()
		if now, err := sub.Stat("."); err != nil || !os.SameFile(now, st) {
			return errors.Join(err, fmt.Errorf("%q changed while it was read", name))
		}
		return t.directory(sub, name, st)
	case 0:
		return t.file(root, base, h, st)
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(base); err != nil {
			return err
		}
		return t.write(h, nil)
	case fs.ModeNamedPipe:
		h.Typeflag = tar.TypeFifo
		return t.write(h, nil)
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return t.device(h, st)
	}
	t.notice(fmt.Sprintf("%q is a socket: left out", name))
	return nil
}

func (t *tree) device(h *tar.Header, st fs.FileInfo) error {
	sys := st.Sys().(*syscall.Stat_t)
	h.Typeflag = tar.TypeBlock
	if st.Mode()&fs.ModeCharDevice != 0 {
		h.Typeflag = tar.TypeChar
	}
	h.Devmajor, h.Devminor = int64(unix.Major(sys.Rdev)), int64(unix.Minor(sys.Rdev))
	return t.write(h, nil)
}

// file writes a file, or a hard link if the file was already written under another name.
func (t *tree) file(root *os.Root, base string, h *tar.Header, st fs.FileInfo) error {
	sys := st.Sys().(*syscall.Stat_t)
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if sys.Nlink > 1 {
		id := inode{sys.Dev, sys.Ino}
		if first, ok := t.links[id]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return t.write(h, nil)
		}
		t.links[id] = h.Name
	}
	// The file may have been replaced. SameFile detects a symbolic link, and O_NONBLOCK prevents waiting for a
	// pipe.
	f, err := root.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, st) {
		return errors.Join(err, fmt.Errorf("%q changed while it was read", h.Name))
	}
	if err := t.write(h, f); err != nil {
		return err
	}
	if _, err := io.CopyN(t.tar, fsutil.ContextReader(t.ctx, f), h.Size); err != nil {
		return fmt.Errorf("read %q: %w", h.Name, err)
	}
	return nil
}

// header returns the fields that all kinds of files share.
func (t *tree) header(name string, st fs.FileInfo) *tar.Header {
	sys := st.Sys().(*syscall.Stat_t)
	h := &tar.Header{
		Format: tar.FormatPAX, Name: name, Mode: int64(sys.Mode & 0o7777),
		Uid: int(sys.Uid), Gid: int(sys.Gid), ModTime: st.ModTime().Truncate(time.Second),
	}
	if h.Uid == t.uid {
		h.Uid = 0
	}
	if h.Gid == t.gid {
		h.Gid = 0
	}
	return h
}

// write writes a header. If f is not nil, the header includes its extended attributes.
func (t *tree) write(h *tar.Header, f *os.File) error {
	if f != nil {
		attributes, err := xattrs(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("read attributes of %q: %w", h.Name, err)
		}
		h.PAXRecords = attributes
	}
	return t.tar.WriteHeader(h)
}

// xattrs returns the extended attributes that are meaningful on another machine, as PAX records.
func xattrs(fd int) (map[string]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10) // XATTR_LIST_MAX
	if n, err = unix.Flistxattr(fd, buf); err != nil {
		return nil, err
	}
	records := map[string]string{}
	for _, name := range strings.Split(string(bytes.Trim(buf[:n], "\x00")), "\x00") {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, err
		}
		records["SCHILY.xattr."+name] = string(value[:n])
	}
	return records, nil
}
