package sshserver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"demesne/runner/fileops"
	"demesne/session"
)

// serveFiles serves the subsystem sftp. A process in the sandbox performs each operation, as the sandbox's user: the sandbox's
// kernel resolves each path and link, and no image has to bring a program for it.
func serveFiles(ctx context.Context, box *session.Sandbox, channel ssh.Channel) error {
	tree, err := box.Tree(ctx, nil, "")
	if err != nil {
		return err
	}
	defer tree.Close()
	t := &files{ctx: ctx, tree: tree}
	here, err := t.do(fileops.Request{Op: fileops.OpHere, Path: "."}, nil, nil)
	if err != nil || len(here.Infos) != 1 {
		return fmt.Errorf("find directory: %w", cmp.Or(err, error(unix.EIO)))
	}
	server := sftp.NewRequestServer(half{channel}, sftp.Handlers{FileGet: t, FilePut: t, FileCmd: t, FileList: t},
		sftp.WithStartDirectory(here.Infos[0].Path), sftp.WithRSMaxTxPacket(fileops.ReadMost))
	defer server.Close()
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve sftp: %w", err)
	}
	return nil
}

// half is a channel whose Close leaves room for the exit code.
type half struct{ ssh.Channel }

func (h half) Close() error { return h.CloseWrite() }

// files are the handlers of the sftp server. The process in the sandbox performs one operation at a time.
type files struct {
	ctx  context.Context
	mu   sync.Mutex
	tree tree
}

// tree is the part of [client.Tree] that files uses.
type tree interface {
	Do(ctx context.Context, q fileops.Request, put func(io.Writer) error, take func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error)
}

func (t *files) do(q fileops.Request, put func(io.Writer) error, take func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tree.Do(t.ctx, q, put, take)
}

// Fileread opens a file for reading.
func (t *files) Fileread(r *sftp.Request) (io.ReaderAt, error) { return t.open(r, os.O_RDONLY) }

// Filewrite opens a file for writing.
func (t *files) Filewrite(r *sftp.Request) (io.WriterAt, error) { return t.open(r, os.O_WRONLY) }

// OpenFile opens a file for both.
func (t *files) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	return t.open(r, os.O_RDWR)
}

func (t *files) open(r *sftp.Request, flags int) (*file, error) {
	p := r.Pflags()
	// Not O_APPEND: pwrite(2) would ignore the offset. The client sends the offsets of what it appends.
	for flag, set := range map[int]bool{os.O_CREATE: p.Creat, os.O_TRUNC: p.Trunc, os.O_EXCL: p.Excl} {
		if set {
			flags |= flag
		}
	}
	mode := uint32(0o644)
	if len(r.Attrs) == 4 { // the flags of the attributes are lost here; OpenSSH sends only the mode
		mode = binary.BigEndian.Uint32(r.Attrs) & 0o777
	}
	a, err := t.do(fileops.Request{Op: fileops.OpOpen, Path: r.Filepath, Flags: flags, Mode: mode}, nil, nil)
	if err != nil {
		return nil, status(err)
	}
	return &file{t, a.Handle}, nil
}

// file is an open file of the sandbox.
type file struct {
	of     *files
	handle int
}

func (f *file) ReadAt(b []byte, offset int64) (n int, err error) {
	q := fileops.Request{Op: fileops.OpRead, Handle: f.handle, Offset: offset, Size: min(len(b), fileops.ReadMost)}
	_, err = f.of.do(q, nil, func(_ *fileops.Answer, from *bufio.Reader) (err error) {
		for n < len(b) && err == nil {
			var m int
			m, err = from.Read(b[n:])
			n += m
		}
		if errors.Is(err, io.EOF) { // of the file; the end of the process is an io.ErrUnexpectedEOF
			return nil
		}
		return err
	})
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, status(err)
}

func (f *file) WriteAt(b []byte, offset int64) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+fileops.ReadMost)]
		q := fileops.Request{Op: fileops.OpWrite, Handle: f.handle, Offset: offset + int64(n)}
		if _, err = f.of.do(q, func(w io.Writer) error { _, err := w.Write(part); return err }, nil); err == nil {
			n += len(part)
		}
	}
	return n, status(err)
}

func (f *file) Close() error {
	_, err := f.of.do(fileops.Request{Op: fileops.OpClose, Handle: f.handle}, nil, nil)
	return status(err)
}

// Filecmd performs an operation without a handle.
func (t *files) Filecmd(r *sftp.Request) error {
	q := fileops.Request{Path: r.Filepath, To: r.Target}
	switch r.Method {
	case "Setstat":
		q.Op, q.Attr = fileops.OpAttr, attributes(r)
	case "Rename": // SFTP's own rename replaces nothing
		if _, err := t.stat(r.Target, false); err == nil {
			return status(unix.EEXIST)
		}
		q.Op = fileops.OpRename
	case "Rmdir":
		q.Op = fileops.OpRmdir
	case "Remove":
		q.Op = fileops.OpUnlink
	case "Mkdir":
		q.Op, q.Mode = fileops.OpMakeDir, 0o755
	case "Link":
		q.Op = fileops.OpLink
	case "Symlink": // here Target is the path of the link
		q.Op, q.Path, q.To = fileops.OpSymlink, r.Target, r.Filepath
	default:
		return sftp.ErrSSHFxOpUnsupported
	}
	_, err := t.do(q, nil, nil)
	return status(err)
}

// PosixRename replaces the target, as rename(2) does.
func (t *files) PosixRename(r *sftp.Request) error {
	_, err := t.do(fileops.Request{Op: fileops.OpRename, Path: r.Filepath, To: r.Target}, nil, nil)
	return status(err)
}

// StatVFS measures the file system.
func (t *files) StatVFS(r *sftp.Request) (*sftp.StatVFS, error) {
	a, err := t.do(fileops.Request{Op: fileops.OpSpace, Path: r.Filepath}, nil, nil)
	if err != nil || a.Space == nil {
		return nil, status(cmp.Or(err, error(unix.EIO)))
	}
	const block = 4096
	free := uint64(max(0, a.Space.Total-a.Space.Used)) / block
	return &sftp.StatVFS{Bsize: block, Frsize: block, Blocks: uint64(max(0, a.Space.Total)) / block, Bfree: free, Bavail: free, Namemax: 255}, nil
}

// attributes returns what a Setstat changes.
func attributes(r *sftp.Request) *fileops.Attr {
	set, to, a := r.AttrFlags(), r.Attributes(), &fileops.Attr{}
	if to == nil {
		return a
	}
	if set.Size {
		size := int64(to.Size)
		a.Size = &size
	}
	if set.Permissions {
		mode := to.Mode & 0o7777
		a.Mode = &mode
	}
	if set.UidGid {
		a.Owner = &fileops.Owner{UID: to.UID, GID: to.GID}
	}
	if set.Acmodtime {
		accessed, modified := to.AccessTime(), to.ModTime()
		a.Accessed, a.Modified = &accessed, &modified
	}
	return a
}

// Filelist lists a directory, or describes a file.
func (t *files) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "Stat" {
		return t.stat(r.Filepath, true)
	}
	a, err := t.do(fileops.Request{Op: fileops.OpList, Path: r.Filepath}, nil, nil)
	if err != nil {
		return nil, status(err)
	}
	return described(a.Infos)
}

// Lstat describes a file or a link.
func (t *files) Lstat(r *sftp.Request) (sftp.ListerAt, error) { return t.stat(r.Filepath, false) }

func (t *files) stat(path string, follow bool) (sftp.ListerAt, error) {
	a, err := t.do(fileops.Request{Op: fileops.OpStat, Path: path, Follow: follow}, nil, nil)
	if err != nil {
		return nil, status(err)
	}
	if len(a.Infos) != 1 {
		return nil, status(unix.EIO)
	}
	a.Infos[0].Path = path // the root has no name of its own
	return list{info{a.Infos[0], path}}, nil
}

// Readlink returns the text of a link.
func (t *files) Readlink(path string) (string, error) {
	a, err := t.do(fileops.Request{Op: fileops.OpStat, Path: path}, nil, nil)
	switch {
	case err != nil:
		return "", status(err)
	case len(a.Infos) != 1 || a.Infos[0].Type != "link":
		return "", status(unix.EINVAL)
	}
	return a.Infos[0].Target, nil
}

// list is the entries of a directory.
type list []info

func (l list) ListAt(to []os.FileInfo, from int64) (n int, err error) {
	if from >= int64(len(l)) {
		return 0, io.EOF
	}
	for n < len(to) && int(from)+n < len(l) {
		to[n] = l[int(from)+n]
		n++
	}
	return n, nil
}

// described checks the names that a sandbox sent.
func described(infos []fileops.Info) (list, error) {
	all := make(list, 0, len(infos))
	for _, i := range infos {
		name, err := i.Name()
		if err != nil {
			return nil, err
		}
		all = append(all, info{i, name})
	}
	return all, nil
}

// info is a file's description, in the terms of package fs.
type info struct {
	of   fileops.Info
	name string
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.of.Size }
func (i info) ModTime() time.Time { return i.of.Modified }
func (i info) IsDir() bool        { return i.of.Type == "directory" }
func (i info) Sys() any           { return nil }
func (i info) Uid() uint32        { return i.of.UID } //nolint:revive // the name is the library's
func (i info) Gid() uint32        { return i.of.GID } //nolint:revive // the name is the library's

func (i info) Mode() fs.FileMode {
	mode := fs.FileMode(i.of.Mode & 0o777)
	for bit, of := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if i.of.Mode&bit != 0 {
			mode |= of
		}
	}
	switch i.of.Type {
	case "directory":
		mode |= fs.ModeDir
	case "link":
		mode |= fs.ModeSymlink
	case "other":
		mode |= fs.ModeIrregular
		if strings.HasPrefix(i.of.Text, "p") {
			mode = mode&^fs.ModeIrregular | fs.ModeNamedPipe
		}
	}
	return mode
}

// status turns an error of the sandbox's kernel into the one that the library translates.
func status(err error) error {
	var e *fileops.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Errno {
	case 0:
		return err
	case syscall.EPERM, syscall.EACCES, syscall.ENOENT:
		return e.Errno
	}
	return &fs.PathError{Op: "sftp", Path: e.Text, Err: e.Errno}
}
