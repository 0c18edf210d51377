package upper

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Bounds of one [FindAutorun]. With all of them reached it takes a fraction of a second.
const (
	autorunDirs  = 8192    // directories
	autorunNames = 1 << 18 // names in them
	autorunDepth = 32      // levels below the top
	autorunFiles = 2048    // files found
	autorunText  = 1 << 20 // bytes of one file that are compared
)

// Autorun lists the files below a directory that programs of the host would execute or obey later: those of the table
// behind [ExecutedBy], and what the configuration of a git repository names. Two of them show what a sandbox changed.
//
// The walk follows no link. It visits the directory and those below it, with git's own directories, worktrees and
// submodules, as far as they lie below the directory. It is bounded: a file beyond the bounds is not found.
type Autorun struct {
	Truncated bool // a bound was reached

	files  map[string]autorunFile // by path
	guards map[string]bool        // see Protected
}

// An Executable is a file that a program of the host would execute or obey.
type Executable struct {
	Path string // relative to the directory that was walked
	By   string // the program
	New  bool   // else changed
}

type autorunFile struct {
	by, state string // state differs if the file differs
}

// FindAutorun walks a directory. Its name must be its absolute path without links, so that absolute paths in a git
// configuration are recognized.
func FindAutorun(root *os.Root) (*Autorun, error) {
	top, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("find files that the host executes: %w", err)
	}
	defer top.Close()
	w := &autorunWalk{
		Autorun: Autorun{files: map[string]autorunFile{}, guards: map[string]bool{}},
		top:     int(top.Fd()), name: root.Name(), seen: map[string]bool{}, tops: map[string]bool{".": true},
	}
	for dirs := []string{"."}; len(dirs) > 0; dirs = dirs[1:] {
		dirs = append(dirs, w.dir(dirs[0])...)
	}
	return &w.Autorun, nil
}

// Protected returns the paths that exist and that a sandbox has no need to write, sorted: a path above another comes
// first. They are files or directories, without links on the way. Files in ordinary subdirectories are not among
// them, only those of the directory itself and of repositories and worktrees in it.
func (a *Autorun) Protected() (paths []string) {
	for p := range a.guards {
		above := path.Dir(p)
		for above != "." && !a.guards[above] {
			above = path.Dir(above)
		}
		if above == "." {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// Since returns the files that are new or changed after before was found, sorted.
func (a *Autorun) Since(before *Autorun) (files []Executable) {
	for p, f := range a.files {
		was, existed := before.files[p]
		if !existed || was.state != f.state {
			files = append(files, Executable{Path: p, By: f.by, New: !existed})
		}
	}
	slices.SortFunc(files, func(a, b Executable) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// autorunWalk is the state of one FindAutorun. All paths are relative to top and clean; "." is top.
type autorunWalk struct {
	Autorun
	top   int
	name  string
	seen  map[string]bool // directories of git
	tops  map[string]bool // directories whose files are protected: top, repositories and worktrees
	dirs  int
	names int
	buf   [32 << 10]byte
}

// dir looks at one directory and returns those below it.
func (w *autorunWalk) dir(at string) (below []string) {
	names := w.list(at)
	if names == nil {
		return nil
	}
	w.repository(at, names)
	deepest := at != "." && strings.Count(at, "/")+1 >= autorunDepth
	may := executorFilter(path.Base(at))
	for _, e := range names {
		switch {
		case e.Type != unix.DT_DIR:
			if may(e.Name) {
				w.file(path.Join(at, e.Name), e)
			}
		case e.Name == ".git":
		case deepest:
			w.Truncated = true
		default:
			below = append(below, path.Join(at, e.Name))
		}
	}
	slices.Sort(below)
	return below
}

// file looks at one file that the table may list.
func (w *autorunWalk) file(p string, e fsutil.Dirent) {
	if h, base := executorOf(p); h.by != "" && !h.inGit() {
		w.found(h, p, path.Clean(base))
	}
	if by := executorDirs()[e.Name]; by != "" && e.Type == unix.DT_LNK { // a link to what the table would match
		w.add(p, by, false)
	}
}

// repository looks at the git directory that belongs to a directory with these names, or is that directory.
func (w *autorunWalk) repository(at string, names []fsutil.Dirent) {
	has := map[string]byte{}
	for _, e := range names {
		switch e.Name {
		case ".git", "HEAD", "config", "objects", "refs":
			has[e.Name] = e.Type
		}
	}
	bare := has["HEAD"] == unix.DT_REG && has["config"] != 0 && has["objects"] != 0 && has["refs"] != 0
	git := path.Join(at, ".git")
	switch kind := has[".git"]; {
	case kind == unix.DT_DIR:
		w.tops[at] = true
		w.git(git, at)
	case kind != 0: // the link of a worktree or submodule
		w.tops[at] = true
		w.add(git, "git", true)
		if to, ok := strings.CutPrefix(w.text(git), "gitdir:"); ok {
			if dir, ok := w.resolve(at, strings.TrimSpace(to)); ok {
				w.git(dir, at)
			}
		}
	case bare:
		w.git(at, at)
	}
}

// git looks at a repository's own directory. Its work tree is at.
func (w *autorunWalk) git(dir, at string) {
	if w.seen[dir] {
		return
	}
	w.seen[dir] = true
	for _, name := range []string{"config", "config.worktree", "commondir"} {
		w.add(path.Join(dir, name), "git", true)
	}
	w.config(path.Join(dir, "config"), at, 0)
	w.config(path.Join(dir, "config.worktree"), at, 0)
	w.hooks(path.Join(dir, "hooks"))
	for _, more := range []string{"modules", "worktrees"} {
		w.gitsBelow(path.Join(dir, more), 4)
	}
}

// gitsBelow looks for git directories of submodules and worktrees. A submodule's name may have slashes.
func (w *autorunWalk) gitsBelow(dir string, levels int) {
	for _, e := range w.list(dir) {
		p := path.Join(dir, e.Name)
		if e.Type != unix.DT_DIR {
			continue
		}
		if w.kind(path.Join(p, "HEAD")) == unix.S_IFREG {
			w.git(p, p)
		} else if levels > 1 {
			w.gitsBelow(p, levels-1)
		}
	}
}

// hooks looks at a directory of git hooks.
func (w *autorunWalk) hooks(dir string) {
	if w.kind(dir) == unix.S_IFLNK {
		w.add(dir, "git", false)
	}
	if w.kind(dir) != unix.S_IFDIR {
		return
	}
	w.guards[dir] = true
	for _, e := range w.list(dir) {
		if !strings.HasSuffix(e.Name, ".sample") {
			w.add(path.Join(dir, e.Name), "git", false)
		}
	}
}

// found adds a file that a row of the table matches below base.
func (w *autorunWalk) found(h executor, p, base string) {
	protect := w.tops[base]
	w.add(p, h.by, protect && h.guard == guardFile)
	up := path.Dir(p)
	if h.guard == guardAbove {
		up = path.Dir(up)
	}
	if protect && h.guard >= guardDir && up != "." {
		w.guards[up] = true
	}
}

// add adds a file, if it exists. A link cannot be protected, but a change of it is found.
func (w *autorunWalk) add(p, by string, protect bool) {
	if len(w.files) >= autorunFiles {
		w.Truncated = true
		return
	}
	state, kind := w.state(p)
	if kind == 0 {
		return
	}
	w.files[p] = autorunFile{by, state}
	if protect && kind == unix.S_IFREG {
		w.guards[p] = true
	}
}

// open opens a path without following links. It blocks on no fifo.
func (w *autorunWalk) open(p string, flags uint64) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	return unix.Openat2(w.top, p, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// list reads a directory. It returns nil for other files, and when the bounds are reached.
func (w *autorunWalk) list(dir string) []fsutil.Dirent {
	if w.dirs++; w.dirs > autorunDirs || w.names > autorunNames {
		w.Truncated = true
		return nil
	}
	fd, err := w.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	all := []fsutil.Dirent{}
	for w.names <= autorunNames {
		n, err := unix.Getdents(fd, w.buf[:])
		if n <= 0 || err != nil {
			return all
		}
		for _, e := range fsutil.ParseDirents(w.buf[:n]) {
			w.names++
			e.Type = w.typeOf(fd, e)
			all = append(all, e)
		}
	}
	w.Truncated = true
	return all
}

// typeOf returns the type of an entry, with a stat if the file system does not report it.
func (w *autorunWalk) typeOf(fd int, e fsutil.Dirent) byte {
	if e.Type != unix.DT_UNKNOWN {
		return e.Type
	}
	st, err := stat(fd, e.Name)
	if err != nil {
		return e.Type
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT of dirent.h
}

// kind returns the kind of a file, or 0 if it does not exist.
func (w *autorunWalk) kind(p string) uint16 {
	fd, err := w.open(p, unix.O_PATH)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	st, err := stat(fd, "")
	if err != nil {
		return 0
	}
	return st.Mode & unix.S_IFMT
}

// state describes the kind, mode and content of a file.
func (w *autorunWalk) state(p string) (state string, kind uint16) {
	kind = w.kind(p)
	switch kind {
	case 0, unix.S_IFDIR:
		return "", 0
	case unix.S_IFLNK:
		parent, err := w.open(path.Dir(p), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return "", 0
		}
		defer unix.Close(parent)
		to, _ := fsutil.ReadlinkAt(parent, path.Base(p))
		return "link " + to, kind
	case unix.S_IFREG:
		return w.content(p), kind
	}
	return fmt.Sprintf("kind %o", kind), kind
}

func (w *autorunWalk) content(p string) string {
	fd, err := w.open(p, unix.O_RDONLY)
	if err != nil {
		return err.Error()
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	st, err := stat(fd, "")
	sum := sha256.New()
	_, cerr := io.Copy(sum, io.LimitReader(f, autorunText))
	if err := errors.Join(err, cerr); err != nil {
		return err.Error()
	}
	state := fmt.Sprintf("%x %o %d", sum.Sum(nil), st.Mode&0o111, st.Size)
	if st.Size > autorunText { // the rest may differ: no system call sets the ctime back
		state += changed(st).String()
	}
	return state
}

// text returns the first bytes of a regular file, or "".
func (w *autorunWalk) text(p string) string {
	if w.kind(p) != unix.S_IFREG {
		return ""
	}
	fd, err := w.open(p, unix.O_RDONLY)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, autorunText))
	return string(b)
}

// resolve returns the path that a name in a file below dir means, if that lies below the top.
func (w *autorunWalk) resolve(dir, name string) (string, bool) {
	if strings.ContainsRune(name, 0) || name == "" || strings.HasPrefix(name, "~") {
		return "", false
	}
	if path.IsAbs(name) {
		rest, ok := strings.CutPrefix(path.Clean(name), w.name+"/")
		return rest, ok
	}
	p := path.Join(dir, name)
	return p, p != ".." && !strings.HasPrefix(p, "../")
}
