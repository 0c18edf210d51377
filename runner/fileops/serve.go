package fileops

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Serve serves requests in the sandbox, one after the other, until in ends. It returns an exit status. It has only the
// rights of the user that it was executed as.
// shared is the file of a [Shared]; without one the caller sends every byte through in.
func Serve(in io.Reader, out io.Writer, shared *os.File) int {
	s := newServer(in, out)
	if shared != nil {
		s.memory = sync.OnceValues(func() (*Shared, error) { return received(shared) })
	}
	for {
		var t Request
		err := readLine(s.in, lineMost, &t)
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err == nil {
			err = t.Check()
		}
		s.said, s.users.sure, s.groups.sure = false, false, false
		if err == nil {
			t.Path = absolute(t.Dir, t.Path)
			if t.Op != OpSymlink {
				t.To = absolute(t.Dir, t.To)
			}
			err = s.serve(t)
		}
		// A broken stream cannot carry an error, so the process ends.
		broke := err != nil && (s.said || t.Op == OpPut || errors.Is(err, errAnswer))
		if err != nil && !s.said {
			s.answer(Answer{Errno: errno(err), Error: fsutil.PathReason(err)})
		}
		if s.out.Flush() != nil || broke {
			return 1
		}
	}
}

// absolute makes a path absolute. dir is the home directory.
func absolute(dir, path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = "./" + path[1:]
	}
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/", dir, path)
}

// errno returns the kernel's error, or EIO.
func errno(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return syscall.EIO
}

// server serves one request at a time. It keeps its buffers: to allocate them again takes longer than a small file.
type server struct {
	in      *bufio.Reader
	out     *bufio.Writer
	said    bool          // the first line was written
	content *bufio.Reader // of a Put
	scratch []byte        // bytes of a Get, or extended attributes, until the next use
	memory  func() (*Shared, error)

	files  map[int]*os.File // open files, by Handle
	opened int              // how many files were opened
	large  []byte           // bytes of a Read or a Write

	users, groups accounts
}

func newServer(in io.Reader, out io.Writer) *server {
	return &server{
		in: bufio.NewReaderSize(in, putAhead), out: bufio.NewWriterSize(out, 64<<10), content: bufio.NewReaderSize(nil, putAhead), scratch: make([]byte, pieceMost),
		users: accounts{file: "/etc/passwd"}, groups: accounts{file: "/etc/group"},
	}
}

func (s *server) answer(a Answer) error {
	s.said = true
	return json.NewEncoder(s.out).Encode(a)
}

// about answers with the description of one file.
func (s *server) about(path string) error {
	info, err := s.info(path)
	if err != nil {
		return err
	}
	return s.answer(Answer{Infos: []Info{info}})
}

func (s *server) serve(t Request) error {
	switch t.Op {
	case OpStat:
		if t.Follow {
			st, err := os.Stat(t.Path)
			if err != nil {
				return err
			}
			return s.answer(Answer{Infos: []Info{s.describe(t.Path, st)}})
		}
		return s.about(t.Path)
	case OpList:
		return s.list(t)
	case OpMkdir:
		if info, err := os.Stat(t.Path); err == nil {
			if info.IsDir() {
				return &fs.PathError{Op: "mkdir", Path: t.Path, Err: unix.EEXIST}
			}
			return &fs.PathError{Op: "mkdir", Path: t.Path, Err: unix.ENOTDIR}
		}
		if err := makeDirs(t.Path, t.Owner); err != nil {
			return err
		}
		return s.about(t.Path)
	case OpMove:
		if _, err := os.Lstat(t.Path); err != nil {
			return err
		}
		if err := makeDirs(filepath.Dir(t.To), t.Owner); err != nil {
			return err
		}
		if err := os.Rename(t.Path, t.To); err != nil {
			return &fs.PathError{Op: "rename", Path: t.Path, Err: errno(err)}
		}
		return s.about(t.To)
	case OpRemove:
		if err := os.RemoveAll(t.Path); err != nil {
			return err
		}
		return s.answer(Answer{})
	case OpGet:
		return s.get(t)
	case OpPut:
		return s.put(t)
	case OpWatch:
		return s.watch(t)
	case OpHome:
		return s.home(t)
	case OpOwn:
		if err := own(t.Path, t.Owner); err != nil {
			return err
		}
		return s.answer(Answer{})
	case OpSpace:
		var st unix.Statfs_t
		if err := unix.Statfs(t.Path, &st); err != nil {
			return &fs.PathError{Op: "statfs", Path: t.Path, Err: err}
		}
		unit := int64(st.Bsize)
		return s.answer(Answer{Space: &Space{Used: int64(st.Blocks-st.Bfree) * unit, Total: int64(st.Blocks) * unit}})
	case OpOpen, OpRead, OpWrite, OpClose, OpAttr, OpRename, OpLink, OpSymlink, OpUnlink, OpRmdir, OpMakeDir, OpHere:
		return s.serveFile(t)
	}
	return &Error{syscall.EINVAL, fmt.Sprintf("operation %q: unknown", t.Op)}
}

// makeDirs makes a directory with its missing parents, which belong to owner unless it is nil.
func makeDirs(dir string, owner *Owner) error {
	var missing []string
	for d := dir; owner != nil && d != "/"; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil {
			break
		}
		missing = append(missing, d)
	}
	err := os.MkdirAll(dir, 0o755)
	for i := 0; err == nil && i < len(missing); i++ {
		err = os.Lchown(missing[i], int(owner.UID), int(owner.GID))
	}
	return err
}

// own gives a directory to its new owner, if root owns it.
func own(dir string, to *Owner) error {
	if to == nil {
		return &fs.PathError{Op: "chown", Path: dir, Err: unix.EINVAL}
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil || st.Uid != 0 {
		return err
	}
	return d.Chown(int(to.UID), int(to.GID))
}

// list describes what is in a directory, without the directory itself.
func (s *server) list(t Request) error {
	info, err := os.Stat(t.Path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "list", Path: t.Path, Err: unix.ENOTDIR}
	}
	a := Answer{}
	if err := s.descend(t.Path, max(t.Depth, 1), &a); err != nil {
		return err
	}
	return s.answer(a)
}

func (s *server) descend(dir string, depth int, to *Answer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if len(to.Infos) >= listMost {
			return &fs.PathError{Op: "list", Path: dir, Err: unix.EOVERFLOW}
		}
		path := filepath.Join(dir, e.Name())
		info, err := s.info(path)
		if err != nil {
			continue // it is gone
		}
		to.Infos = append(to.Infos, info)
		if depth > 1 && e.IsDir() {
			if err := s.descend(path, depth-1, to); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// get writes a file's bytes after its description.
func (s *server) get(t Request) error {
	f, err := os.OpenFile(t.Path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO without a writer would block
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		code := unix.EINVAL
		if st.IsDir() {
			code = unix.EISDIR
		}
		return &fs.PathError{Op: "read", Path: t.Path, Err: code}
	}
	info := s.describe(t.Path, st)
	info.Meta = s.meta(openAttributes(f))
	if err := s.answer(Answer{Infos: []Info{info}}); err != nil {
		return err
	}
	to := Chunks(s.out)
	if _, err = io.CopyBuffer(to, struct{ io.Reader }{f}, s.scratch); err != nil {
		return err
	}
	return to.Close()
}

// putAhead is the size of the buffers of a Put's bytes: several chunks a system call.
const putAhead = 4 * pieceMost

// smallMost bounds the content that put has in hand before it opens the file. More is complete in a draft first.
const smallMost = 64 << 10

// finish sets the owner and the metadata of the written file f, closes it, and describes it.
func (s *server) finish(f *os.File, t Request) error {
	if t.Owner != nil {
		if err := f.Chown(int(t.Owner.UID), int(t.Owner.GID)); err != nil {
			return err
		}
	}
	st, err := f.Stat()
	if err == nil {
		err = s.setMeta(f, t.Meta)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	i := s.describe(t.Path, st)
	i.Meta = t.Meta
	return s.answer(Answer{Infos: []Info{i}})
}

// home answers with the account called t.Path. Without one it is the sandbox's own user, whose home directory is made
// where the rights suffice.
func (s *server) home(t Request) error {
	name := filepath.Base(t.Path)
	for line := range passwd("/etc/passwd") {
		if uid, err1 := strconv.ParseUint(line[2], 10, 32); line[0] == name && err1 == nil {
			gid, err2 := strconv.ParseUint(line[3], 10, 32)
			if err2 == nil && filepath.IsAbs(line[5]) {
				return s.answer(Answer{Home: &Home{uint32(uid), uint32(gid), line[5], true, gives()}})
			}
		}
	}
	if t.To == "" {
		return &fs.PathError{Op: "find account", Path: name, Err: unix.ESRCH}
	}
	h := &Home{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Dir: t.To}
	if err := os.MkdirAll(t.To, 0o755); err != nil {
		h.Dir = s.ownHome()
	}
	return s.answer(Answer{Home: h})
}

// gives reports whether this process may give files to other users.
func gives() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_CHOWN) != 0
}

// ownHome returns the home directory of this process's user.
func (s *server) ownHome() string {
	for line := range passwd("/etc/passwd") {
		if line[2] == strconv.Itoa(os.Getuid()) && filepath.IsAbs(line[5]) {
			return line[5]
		}
	}
	return "/"
}

// passwd yields the well-formed lines of /etc/passwd, or of /etc/group, with at least six fields.
func passwd(file string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(io.LimitReader(f, 1<<20))
		for line := range strings.Lines(string(b)) {
			fields := append(strings.Split(strings.TrimSpace(line), ":"), "", "", "", "")
			if len(fields) > 6 && !yield(fields) {
				return
			}
		}
	}
}

// accounts knows the names of users or groups, from a file whose lines have a name and an id.
type accounts struct {
	file  string
	names map[string]string // by id
	from  fs.FileInfo       // the file that names are from; nil: it may have changed since
	sure  bool              // from was compared for this request
}

// settled is the age from which on a file's time tells one content from the next.
const settled = time.Second

// read reads the file, if it is not known.
func (a *accounts) read() {
	a.sure = true
	st, err := os.Stat(a.file)
	if err == nil && a.from != nil && os.SameFile(st, a.from) && st.Size() == a.from.Size() && st.ModTime().Equal(a.from.ModTime()) {
		return
	}
	a.names, a.from = map[string]string{}, nil
	for line := range passwd(a.file) {
		if _, there := a.names[line[2]]; !there {
			a.names[line[2]] = line[0]
		}
	}
	if err == nil && time.Since(st.ModTime()) > settled {
		a.from = st
	}
}

// name returns the name of an id, or the id itself.
func (a *accounts) name(id uint32) string {
	if !a.sure {
		a.read()
	}
	word := strconv.FormatUint(uint64(id), 10)
	if name := a.names[word]; name != "" {
		return name
	}
	return word
}

// info describes a file.
func (s *server) info(path string) (i Info, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return i, err
	}
	i = s.describe(path, st)
	if i.Type == "file" {
		i.Meta = s.meta(attributes{
			func(to []byte) (int, error) { return unix.Llistxattr(path, to) },
			func(name string, to []byte) (int, error) { return unix.Lgetxattr(path, name, to) },
		})
	}
	return i, nil
}

// describe describes a file but for its metadata.
func (s *server) describe(path string, st fs.FileInfo) Info {
	i := Info{Path: path, Size: st.Size(), Mode: uint32(st.Mode().Perm()), Text: listMode(st.Mode()), Modified: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		i.Mode = sys.Mode & 0o7777
		i.UID, i.GID = sys.Uid, sys.Gid
		i.Owner, i.Group = s.users.name(sys.Uid), s.groups.name(sys.Gid)
	}
	switch {
	case st.Mode().IsRegular():
		i.Type = "file"
	case st.IsDir():
		i.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		i.Type = "link"
		i.Target, _ = os.Readlink(path)
		i.Real = s.follow(path)
	default:
		i.Type = "other"
	}
	return i
}

// follow describes the file that a link leads to. It returns nil for a link to no file.
func (s *server) follow(link string) *Real {
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	i := s.describe(path, st)
	return &Real{Path: path, Type: i.Type, Mode: i.Mode}
}

// listMode returns a mode as ls prints it.
func listMode(m fs.FileMode) string {
	kind := "-"
	switch {
	case m.IsDir():
		kind = "d"
	case m&fs.ModeSymlink != 0:
		kind = "l"
	}
	return kind + m.Perm().String()[1:]
}

// metaPrefix is the prefix of the extended attributes that hold a file's metadata. It is E2B's, so that a program written
// for E2B can set them in the sandbox.
const metaPrefix = "user.e2b."

// attributes reads the extended attributes of a file.
type attributes struct {
	list func(to []byte) (int, error)
	get  func(name string, to []byte) (int, error)
}

// openAttributes returns the attributes of an open file.
func openAttributes(f *os.File) attributes {
	fd := int(f.Fd())
	return attributes{
		func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		func(name string, to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) },
	}
}

// metaNames returns the names of the attributes that hold metadata.
func (s *server) metaNames(a attributes) (names []string) {
	n, err := a.list(s.scratch)
	if err != nil || n <= 0 {
		return nil
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(s.scratch[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(name, metaPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// meta returns the metadata of a file.
func (s *server) meta(a attributes) (all map[string]string) {
	for _, name := range s.metaNames(a) {
		if n, err := a.get(name, s.scratch); err == nil {
			if all == nil {
				all = map[string]string{}
			}
			all[strings.TrimPrefix(name, metaPrefix)] = string(s.scratch[:n])
		}
	}
	return all
}

// setMeta replaces the metadata of a file.
func (s *server) setMeta(f *os.File, to map[string]string) error {
	fd := int(f.Fd())
	for _, name := range s.metaNames(openAttributes(f)) {
		unix.Fremovexattr(fd, name)
	}
	keys := make([]string, 0, len(to))
	for k := range to {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := unix.Fsetxattr(fd, metaPrefix+k, []byte(to[k]), 0); err != nil {
			return &fs.PathError{Op: "set metadata", Path: f.Name(), Err: err}
		}
	}
	return nil
}
