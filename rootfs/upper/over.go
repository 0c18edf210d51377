package upper

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Over is an upper over a directory of the caller. [Over.Edits] compares the two, and [Over.Apply] changes the directory
// as the sandbox changed its view of it. No sandbox may be using the upper.
//
// The upper is as untrusted as every file of a sandbox. The directory is the caller's, but another sandbox may be
// writing to it.
type Over struct {
	Up, Dir *os.File
	Since   time.Time // when the upper was made, by the clock of Dir's file system

	// States holds what Dir had at the paths of earlier edits when they were first found. Edits adds to it, and
	// Apply updates it.
	States map[string]State

	auto  *Autorun // of Dir; nil: not looked for yet
	links map[fileID]string
	buf   []byte
	dirs  map[string]bool // whose attributes Finish sets
}

// State describes a file of the caller, so that a later change of it is noticed. The empty State means a missing file.
type State string

// stateChanged is the State of a file that the caller had changed when the edit was found.
const stateChanged State = "changed"

// An Edit is one change that a sandbox made.
type Edit struct {
	Path string // relative to the directory, any bytes but NUL
	Kind byte   // 'A', 'M' or 'D'

	By      string // the program of the host that would execute or obey the file; see [ExecutedBy]
	Class   Class  // when it would
	Guarded bool   // the file is one that a sandbox has no need to write; see [Autorun.Protected]
	Leads   string // target of a link that leads out of the directory
	Changed bool   // the caller changed the file meanwhile
	Special bool   // a device, fifo or socket, which is not applied

	kind uint32 // of file in the upper; 0: none
}

// Limits of one Edits.
const (
	overNames = 1 << 18
	overText  = 64 << 20 // bytes of all paths
	overDepth = 1 << 10  // levels
)

// Edits returns what differs, sorted by path. If all is false, there were too many differences to return them all.
func (o *Over) Edits() (edits []Edit, all bool, err error) {
	if o.auto == nil {
		if o.auto, err = FindAutorun(o.Dir.Name()); err != nil {
			return nil, false, fmt.Errorf("compare files: %w", err)
		}
	}
	if o.States == nil {
		o.States = map[string]State{}
	}
	c := comparison{Over: o, opaque: map[string]bool{}}
	w := &walk{most: overDepth}
	w.visit = func(at int, name string, st *unix.Statx_t) error {
		if name == "" {
			return nil
		}
		full := w.path(name)
		c.names++
		if c.text += len(full); c.names > overNames || c.text > overText || len(full) > diffPath {
			c.cut, w.enough = true, true
			return nil
		}
		return c.file(at, name, full, st)
	}
	if err := w.run(o.Up); err != nil {
		return nil, false, fmt.Errorf("compare files: %w", err)
	}
	slices.SortFunc(c.edits, func(a, b Edit) int { return strings.Compare(a.Path, b.Path) })
	return c.edits, !c.cut, nil
}

// comparison is the state of one Edits.
type comparison struct {
	*Over
	edits  []Edit
	opaque map[string]bool // directories of the upper that hide Dir's, with all that these contain
	names  int
	text   int
	cut    bool
}

// file compares one name of the upper.
func (c *comparison) file(at int, name, full string, st *unix.Statx_t) error {
	kind := uint32(st.Mode & unix.S_IFMT)
	e := Edit{Path: full, Kind: 'M', kind: kind}
	below, err := c.lower(full)
	if err != nil {
		return err
	}
	was := kindOf(below)
	switch {
	case kind == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0:
		if below == nil {
			return nil
		}
		e.Kind, e.kind = 'D', 0
	case below == nil:
		e.Kind = 'A'
		c.opaque[full] = kind == unix.S_IFDIR
	case kind == unix.S_IFDIR && was == unix.S_IFDIR:
		if c.opaque[path.Dir(full)] || opaque(at, name) {
			c.opaque[full] = true
			if err := c.hidden(at, name, full); err != nil {
				return err
			}
		}
		if st.Mode&0o777 == below.Mode&0o777 {
			return nil
		}
	case kind == was && same(at, name, st, c.Dir, full, below):
		return nil
	}
	switch kind {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
	default:
		e.Special = e.Kind != 'D'
	}
	c.add(e, at, name, below)
	return nil
}

// hidden adds the names that a directory of Dir has, and that an opaque one of the upper lacks.
func (c *comparison) hidden(at int, name, full string) error {
	dir, err := openBelow(int(c.Dir.Fd()), full, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	names, err := listDir(dir, make([]byte, 64<<10))
	if err != nil {
		return err
	}
	for _, n := range names {
		if c.names++; c.names > overNames {
			c.cut = true
			return nil
		}
		var st unix.Stat_t
		if unix.Fstatat(at, name+"/"+n, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			continue
		}
		if below, err := stat(dir, n); err == nil {
			c.add(Edit{Path: full + "/" + n, Kind: 'D'}, -1, "", below)
		}
	}
	return nil
}

// add completes an edit. at and name are the file in the upper, and below is the one in Dir, if any.
func (c *comparison) add(e Edit, at int, name string, below *unix.Statx_t) {
	state := stateOf(below)
	known, ok := c.States[e.Path]
	switch {
	case cached(e.Path): // never in conflict
	case ok:
		e.Changed = known != state
	case below == nil:
		e.Changed = at >= 0 && copiedUp(at, name)
	case kindOf(below) != unix.S_IFDIR:
		e.Changed = changed(below).After(c.Since)
	}
	if !ok {
		c.States[e.Path] = state
		if e.Changed {
			c.States[e.Path] = stateChanged
		}
	}
	if e.Kind != 'D' {
		e.By, e.Class, e.Guarded = c.executed(e)
	}
	if e.kind == unix.S_IFLNK {
		if target, err := fsutil.ReadlinkAt(at, name); err == nil && c.leadsOut(e.Path, target) {
			e.Leads = target
		}
	}
	c.edits = append(c.edits, e)
}

// executed returns the program that would execute or obey the file of an edit.
func (c *comparison) executed(e Edit) (by string, class Class, guarded bool) {
	if e.kind == unix.S_IFDIR {
		return "", 0, false
	}
	if path.Base(e.Path) == ".git" {
		return "git", ByItself, true
	}
	if m, ok := executorOfFile(e.Path, e.kind == unix.S_IFLNK); ok {
		return m.by, m.class, m.guard
	}
	if f, ok := c.auto.obeys(e.Path); ok {
		return f.by, f.class, true
	}
	if c.bare(e.Path) {
		return "git", ByItself, true
	}
	return "", 0, false
}

// leadsOut reports whether a link of the sandbox would lead out of the directory, or might: through ".." after a name,
// which may be another link, or through a link of the caller that does.
func (o *Over) leadsOut(link, target string) bool {
	at := path.Dir(link)
	if path.IsAbs(target) {
		rest, below := strings.CutPrefix(path.Clean(target)+"/", o.Dir.Name()+"/")
		if !below {
			return true
		}
		at, target = ".", cmp.Or(strings.TrimSuffix(rest, "/"), ".")
	}
	named := false
	for name := range strings.SplitSeq(target, "/") {
		if name == ".." && named {
			return true
		}
		named = named || name != "" && name != "." && name != ".."
	}
	p := path.Join(at, target)
	if p == ".." || strings.HasPrefix(p, "../") {
		return true
	}
	fd, err := fsutil.Openat2(int(o.Dir.Fd()), p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH})
	if err == nil {
		unix.Close(fd)
	}
	return err == unix.EXDEV
}

// bare reports whether a file would be the configuration or a hook of a repository without a work tree.
func (c *comparison) bare(file string) bool {
	dir := path.Dir(file)
	switch path.Base(file) {
	case "config", "config.worktree", "commondir":
	default:
		if path.Base(dir) != "hooks" || strings.HasSuffix(file, ".sample") {
			return false
		}
		dir = path.Dir(dir)
	}
	for _, name := range []string{"HEAD", "objects"} {
		at := path.Join(dir, name)
		up, _ := statBelow(c.Up, at)
		if below, _ := c.lower(at); up == nil && below == nil {
			return false
		}
	}
	return true
}

// obeys returns what executes or obeys a file of the directory, or one that is new in a directory of such files.
func (a *Autorun) obeys(file string) (f autorunFile, ok bool) {
	if f, ok = a.files[file]; ok {
		return f, true
	}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if a.guards[dir] {
			return autorunFile{by: "git"}, true
		}
	}
	return autorunFile{}, false
}

// lower describes a file of Dir. It returns nil for a missing one.
func (o *Over) lower(file string) (*unix.Statx_t, error) { return statBelow(o.Dir, file) }

// statBelow describes a file without following a link. It returns nil for a missing one.
func statBelow(dir *os.File, file string) (*unix.Statx_t, error) {
	fd, err := openBelow(int(dir.Fd()), file, unix.O_PATH)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EXDEV {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	return stat(fd, "")
}

// openBelow opens a file without following a link or entering a mount.
func openBelow(dir int, file string, flags uint64) (int, error) {
	return fsutil.Openat2(dir, file, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func kindOf(st *unix.Statx_t) uint32 {
	if st == nil {
		return 0
	}
	return uint32(st.Mode & unix.S_IFMT)
}

// stateOf describes a file of the caller; nil: a missing one. What a directory contains is not part of its State.
func stateOf(st *unix.Statx_t) State {
	switch {
	case st == nil:
		return ""
	case kindOf(st) == unix.S_IFDIR:
		return State(fmt.Sprintf("dir %o", st.Mode&0o777))
	}
	return State(fmt.Sprintf("%d %d.%09d %d %o", st.Ino, st.Ctime.Sec, st.Ctime.Nsec, st.Size, st.Mode))
}

// copiedUp reports whether overlayfs made the file of an upper as a copy of one below.
func copiedUp(at int, name string) bool {
	n, err := unix.Lgetxattr(fsutil.FDPath(at)+"/"+name, "user.overlay.origin", nil)
	return err == nil && n > 0
}

// same reports whether a sandbox left a file as it was, apart from a copy. Only an equal time of modification shows
// that for a regular file: its content is not read.
func same(at int, name string, st *unix.Statx_t, dir *os.File, full string, below *unix.Statx_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return st.Size == below.Size && st.Mode&0o777 == below.Mode&0o777 && st.Mtime == below.Mtime
	case unix.S_IFLNK:
		up, err1 := fsutil.ReadlinkAt(at, name)
		parent, err2 := openBelow(int(dir.Fd()), path.Dir(full), unix.O_PATH|unix.O_DIRECTORY)
		if err1 != nil || err2 != nil {
			return false
		}
		defer unix.Close(parent)
		low, err := fsutil.ReadlinkAt(parent, path.Base(full))
		return err == nil && up == low
	}
	return false
}
