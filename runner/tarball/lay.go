package tarball

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

// Verbs of [Inside] for building images. Their argument is JSON.
const (
	Lay    = "lay"    // a tar on stdin → the files of an image
	Gather = "gather" // files of an image → a tar on stdout
)

// Layout says where Lay puts the entries of a tar, and whose they become.
type Layout struct {
	Dest  string  `json:"dest"`            // absolute; made if it is missing, with its parents
	Into  bool    `json:"into,omitempty"`  // Dest is a directory even if it is missing
	Owner string  `json:"owner,omitempty"` // USER[:GROUP], by name or id; empty: the owners of the entries
	Mode  *uint32 `json:"mode,omitempty"`  // of all files and directories; nil: the modes of the entries
	Time  int64   `json:"time,omitempty"`  // mtime of the directories that are made above the entries, in seconds; 0: now
}

// FileRecord is a PAX record of an entry that is a source by itself, and no part of a directory. Such an entry becomes
// Layout.Dest, unless that is a directory.
const FileRecord = "DEMESNE.file"

// lay creates the entries of a tar in the file system that it runs in. Unlike Unpack, it sets owners, modes and times. Names
// are resolved as the kernel resolves them here: a link of the image leads to where it leads inside.
func lay(arg string, in io.Reader) error {
	l := layer{buf: make([]byte, 128<<10), known: map[string]bool{}, left: Limits{Bytes: math.MaxInt64, Entries: math.MaxInt}.budget(), umask: unix.Umask(0), oneID: oneID()}
	if err := json.Unmarshal([]byte(arg), &l.Layout); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	if err := l.findOwner(); err != nil {
		return err
	}
	into := l.Into || isDir(l.Dest)
	if into {
		if err := l.parents(l.Dest); err != nil {
			return err
		}
	}
	r := newReader(bufio.NewReaderSize(in, 256<<10))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return l.settle()
		}
		if err != nil {
			return fmt.Errorf("read files: %w", err)
		}
		name := filepath.Join(l.Dest, filepath.Clean("/"+h.Name))
		if h.PAXRecords[FileRecord] != "" && !into {
			if l.whole {
				return errors.New("several sources need a directory as destination, with a slash at its end")
			}
			name, l.whole = filepath.Clean(l.Dest), true
		}
		if err := l.entry(name, h, r); err != nil {
			return err
		}
	}
}

// layer is the state of one lay.
type layer struct {
	Layout
	uid, gid int
	umask    int
	oneID    bool // owners are recorded
	left     budget
	known    map[string]bool // directories that exist
	whole    bool            // an entry became Dest
	links    int             // links without a target that were followed
	dirs     []*tar.Header   // directories made here; their times are set last
	buf      []byte          // for the content of files
}

// findOwner sets the ids that Owner names. A uid alone is also the group's id, as in docker build.
func (l *layer) findOwner() error {
	if l.Owner == "" {
		return nil
	}
	if uid, err := strconv.ParseUint(l.Owner, 10, 31); err == nil {
		l.uid, l.gid = int(uid), int(uid)
		return nil
	}
	u, err := user.GetExecUserPath(l.Owner, &user.ExecUser{}, "/etc/passwd", "/etc/group")
	if err != nil {
		return fmt.Errorf("find user %q: %w", l.Owner, err)
	}
	l.uid, l.gid = u.Uid, u.Gid
	return nil
}

func (l *layer) entry(name string, h *tar.Header, r io.Reader) error {
	if err := l.parents(filepath.Dir(name)); err != nil {
		return err
	}
	if l.Owner != "" {
		h.Uid, h.Gid = l.uid, l.gid
	}
	if l.Mode != nil && h.Typeflag != tar.TypeSymlink {
		h.Mode = int64(*l.Mode)
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		if name == filepath.Clean(l.Dest) {
			return l.parents(name) // the destination itself has no source
		}
		return l.dir(name, h)
	case tar.TypeReg:
		return l.file(name, h, r)
	case tar.TypeSymlink:
		err = l.replace(name, func() error { return os.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		return l.replace(name, func() error { return os.Link(filepath.Join(l.Dest, filepath.Clean("/"+h.Linkname)), name) })
	case tar.TypeFifo:
		err = l.replace(name, func() error { return unix.Mkfifo(name, uint32(h.Mode)&0o7777) })
	default:
		return fmt.Errorf("create %q: a %s cannot be in an image that is built without root", name, leftKind(h))
	}
	if err != nil {
		return err
	}
	return l.attributes(name, h)
}

// maxLinks bounds the links without a target that parents follows.
const maxLinks = 40

// parents makes the missing directories of a path. They belong to Owner, or to root, as in docker build. A link without a
// target leads to a directory that is made too.
func (l *layer) parents(dir string) error {
	if l.known[dir] {
		return nil
	}
	if isDir(dir) {
		l.known[dir] = true
		return nil
	}
	if err := l.parents(filepath.Dir(dir)); err != nil {
		return err
	}
	if to, err := os.Readlink(dir); err == nil {
		if l.links++; l.links > maxLinks {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ELOOP}
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(dir), to)
		}
		return l.parents(filepath.Clean(to))
	}
	h := &tar.Header{Name: dir, Mode: 0o755, ModTime: time.Now(), Uid: l.uid, Gid: l.gid}
	if l.Mode != nil {
		h.Mode = int64(*l.Mode)
	}
	if l.Time != 0 {
		h.ModTime = time.Unix(l.Time, 0)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	l.dirs = append(l.dirs, h)
	return l.owner(dir, h)
}

// dir makes a directory, or keeps an existing one as it is.
func (l *layer) dir(name string, h *tar.Header) error {
	if isDir(name) {
		return nil
	}
	if err := l.replace(name, func() error { return os.Mkdir(name, 0o700) }); err != nil {
		return err
	}
	late := *h
	late.Name = name
	l.dirs = append(l.dirs, &late)
	return errors.Join(l.owner(name, h), setAttrs(name, h))
}

func (l *layer) file(name string, h *tar.Header, r io.Reader) error {
	c, err := readContent(h, r, &l.left)
	if err != nil {
		return fmt.Errorf("create %q: %w", name, err)
	}
	return l.replace(name, func() error {
		// The umask is 0, so most files need no chmod. unix.Open: the os package would ask epoll about each file.
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(h.Mode)&0o777)
		if err != nil {
			return &fs.PathError{Op: "create", Path: name, Err: err}
		}
		if c.sparse {
			f := os.NewFile(uintptr(fd), name)
			return errors.Join(c.restore(f, r), l.finish(fd, name, h), f.Close())
		}
		return errors.Join(l.write(fd, r), l.finish(fd, name, h), unix.Close(fd))
	})
}

// write writes the rest of r to a new file.
func (l *layer) write(fd int, r io.Reader) error {
	for {
		n, err := r.Read(l.buf)
		for p := l.buf[:n]; len(p) > 0; {
			did, err := unix.Write(fd, p)
			if err != nil && err != unix.EINTR {
				return os.NewSyscallError("write", err)
			}
			p = p[max(did, 0):]
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// finish sets owner, mode and time of a new file, in this order: a change of owner clears set-user-ID bits.
func (l *layer) finish(fd int, name string, h *tar.Header) error {
	if err := errors.Join(l.owner(name, h), setAttrs(name, h)); err != nil {
		return err
	}
	if h.Mode&0o7000 != 0 || h.Uid != 0 || h.Gid != 0 {
		if err := unix.Fchmod(fd, uint32(h.Mode)&0o7777); err != nil {
			return fmt.Errorf("set mode of %q: %w", name, err)
		}
	}
	return setTimeOf(name, h.ModTime)
}

// replace calls make after removing what is at name, unless it is a directory.
func (l *layer) replace(name string, make func() error) error {
	err := make()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Unlink(name); err != nil {
		return fmt.Errorf("replace %q: %w", name, err)
	}
	return make()
}

func (l *layer) owner(name string, h *tar.Header) error {
	if h.Uid == 0 && h.Gid == 0 {
		return nil
	}
	if l.oneID {
		return recordOwner(name, h)
	}
	err := os.Lchown(name, h.Uid, h.Gid)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("give %q to %d:%d: this machine's user has no subordinate ids for it", name, h.Uid, h.Gid)
	}
	return err
}

// attributes sets the owner before the mode, because a change of owner clears set-user-ID bits.
func (l *layer) attributes(name string, h *tar.Header) error {
	if err := l.owner(name, h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Chmod(name, uint32(h.Mode)&0o7777); err != nil {
			return fmt.Errorf("set mode of %q: %w", name, err)
		}
	}
	return setTimeOf(name, h.ModTime)
}

// settle sets the modes and times of directories, the deepest first: a new entry changes the time of its directory, and
// a mode may forbid new entries.
func (l *layer) settle() error {
	for i := len(l.dirs) - 1; i >= 0; i-- {
		h := l.dirs[i]
		if err := unix.Chmod(h.Name, uint32(h.Mode)&0o7777); err != nil {
			return fmt.Errorf("set mode of %q: %w", h.Name, err)
		}
		if err := setTimeOf(h.Name, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

func setTimeOf(name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set time of %q: %w", name, err)
	}
	return nil
}

// Gathering names the files that Gather reads.
type Gathering struct {
	Paths []string `json:"paths"`          // absolute; may have * ? and [
	Deep  bool     `json:"deep,omitempty"` // ** stands for any number of directories
	Omit  []string `json:"omit,omitempty"` // files below the paths that are not the image's; absolute
}

// BaseRecord is a PAX record of each entry that Gather writes: the path of the source that it belongs to, without its
// first slash.
const BaseRecord = "DEMESNE.base"

// gather writes files of the file system that it runs in, with their owners. An entry has its whole path as name.
func gather(arg string, out io.Writer) error {
	var g Gathering
	if err := json.Unmarshal([]byte(arg), &g); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	w := &gatherer{omit: g.Omit, packer: packer{w: tar.NewWriter(out), left: Limits{Bytes: math.MaxInt64, Entries: math.MaxInt}.budget()}, linked: map[uint64]string{}, oneID: oneID()}
	for _, p := range g.Paths {
		found, err := Glob(os.DirFS("/"), strings.TrimPrefix(path.Clean(p), "/"), g.Deep, func(name string) bool { return underMount("/" + name) })
		if err != nil {
			return fmt.Errorf("find %q: %w", p, err)
		}
		for _, name := range found {
			if err := w.source("/" + name); err != nil {
				return err
			}
		}
	}
	return w.w.Close()
}

type gatherer struct {
	packer
	base   string
	omit   []string
	linked map[uint64]string // inodes with several names, and the first of them
	oneID  bool              // owners were recorded
}

// source writes one source. A link given as a source is followed.
func (g *gatherer) source(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	g.base = strings.TrimPrefix(filepath.Clean(name), "/")
	st, err := os.Stat(real)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return g.one(real, g.base, st)
	}
	return filepath.WalkDir(real, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if underMount(at) {
			return fs.SkipDir
		}
		if slices.Contains(g.omit, at) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return g.one(at, path.Join(g.base, strings.TrimPrefix(at, real)), info)
	})
}

// underMount reports whether a path belongs to the sandbox and not to the image.
func underMount(p string) bool {
	return p == "/proc" || p == "/sys" || p == "/dev" || p == "/.demesne"
}

func (g *gatherer) one(at, as string, info fs.FileInfo) error {
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return fmt.Errorf("pack %q: %w", at, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = as, int(st.Uid), int(st.Gid), "", "", tar.FormatPAX
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if g.oneID {
		recallOwner(at, h)
	}
	h.PAXRecords = map[string]string{BaseRecord: g.base + "/"}
	if info.IsDir() || info.Mode().IsRegular() {
		addAttrs(at, h)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if h.Linkname, err = os.Readlink(at); err != nil {
			return err
		}
	case !info.Mode().IsRegular():
	case st.Nlink > 1 && g.linked[st.Ino] != "":
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, g.linked[st.Ino], 0
	default:
		g.linked[st.Ino] = as
		return g.regular(at, h)
	}
	return g.w.WriteHeader(h)
}

func (g *gatherer) regular(at string, h *tar.Header) error {
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	records := h.PAXRecords
	c := contentOf(f, info)
	c.describe(h) // with holes, it replaces the records
	maps.Copy(h.PAXRecords, records)
	if err := g.w.WriteHeader(h); err != nil {
		return err
	}
	if err := c.writeExtents(g.w); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{g.w}, c.in(f), buffer(c.data))
	return err
}
