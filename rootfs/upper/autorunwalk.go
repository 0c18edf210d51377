package upper

import (
	"cmp"
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

// bounds limit one walk.
type bounds struct {
	dirs  int // directories
	names int // names in them
	list  int // names in one of them
	depth int // levels below the top
	files int // files found, of each class
}

// autorunBounds are the bounds of [FindAutorun]. A walk that reaches all of them takes a second.
var autorunBounds = bounds{dirs: 1 << 15, names: 1 << 19, list: 1 << 15, depth: 64, files: 2048}

// autorunText is how many bytes of one file are compared.
const autorunText = 1 << 20

// Autorun lists the files below a directory that programs of the host would execute or obey later: the files in the table
// behind [ExecutedBy], and what a git repository's configuration names. Two of them show what a sandbox changed.
//
// The walk follows no link. It visits the directory and those below it, with git's own directories, worktrees and
// submodules, as far as they lie below the directory. It is bounded. What a sandbox adds cannot keep a later walk from
// the directories and files of the first: see [Autorun.Again].
type Autorun struct {
	// Unseen is a directory that was not looked at completely: a bound was reached, or it cannot be read. Else it
	// is empty.
	Unseen string

	name   string // of the directory
	most   bounds
	files  map[string]autorunFile // by path
	guards map[string]bool        // see Protected
	dirs   []string               // as visited
}

// An Executable is a file that a program of the host would execute or obey.
type Executable struct {
	Path  string // relative to the directory that was walked
	By    string // the program
	New   bool   // else changed
	Class Class

	fresh bool // so is the directory where the program would find it
}

type autorunFile struct {
	by    string
	class Class
	base  string // the directory where the program would find it
	state string // differs if the file differs
}

func ofGit(class Class, tree string) autorunFile {
	return autorunFile{by: "git", class: class, base: tree}
}

// FindAutorun walks a directory. The name must be its absolute path without links, so that absolute paths in a git
// configuration are recognized.
func FindAutorun(dir string) (*Autorun, error) {
	return (&Autorun{name: dir, most: autorunBounds}).Again()
}

// Again walks the directory once more. It visits what the first walk visited before everything else, and outside of the
// bounds. So new directories and files, however many, hide no change of old ones.
func (a *Autorun) Again() (*Autorun, error) {
	root, err := os.OpenRoot(a.name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	top, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("find files that the host executes: %w", err)
	}
	defer top.Close()
	w := &autorunWalk{
		Autorun: Autorun{name: a.name, most: a.most, files: map[string]autorunFile{}, guards: map[string]bool{}},
		before:  a, below: a.above(), top: int(top.Fd()),
		gits: map[string]bool{}, tops: map[string]bool{".": true}, queued: map[string]bool{},
	}
	w.run()
	return &w.Autorun, nil
}

// above returns every directory that has listed files in or below it, each with one of these files.
func (a *Autorun) above() map[string]autorunFile {
	all := map[string]autorunFile{}
	for p, f := range a.files {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if old, ok := all[dir]; !ok || f.class < old.class || f.class == old.class && f.by < old.by {
				all[dir] = f
			}
		}
	}
	return all
}

// Protected returns the paths that exist and that a sandbox has no need to write, sorted: a path above another comes
// first. They are files or directories, without links on the way. They lie in the directory itself, or in repositories and
// worktrees in it, not in ordinary subdirectories.
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

// Since returns the files that are new or changed after before was found, the most important first: by class, then those
// that existed, then those in directories that existed, then by depth.
func (a *Autorun) Since(before *Autorun) (files []Executable) {
	old := map[string]bool{}
	for _, dir := range before.dirs {
		old[dir] = true
	}
	for p, f := range a.files {
		was, existed := before.files[p]
		if !existed || was.state != f.state {
			files = append(files, Executable{Path: p, By: f.by, Class: f.class, New: !existed, fresh: !existed && !old[f.base]})
		}
	}
	slices.SortFunc(files, func(a, b Executable) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), falseFirst(a.New, b.New), falseFirst(a.fresh, b.fresh),
			cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/")), strings.Compare(a.Path, b.Path))
	})
	return files
}

func (m match) file() autorunFile { return autorunFile{by: m.by, class: m.class, base: m.base} }

// falseFirst sorts false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// autorunWalk is the state of one walk. All paths are relative to top and clean; "." is top.
type autorunWalk struct {
	Autorun
	before *Autorun
	below  map[string]autorunFile // see above; of before
	top    int
	gits   map[string]bool // directories of git, with the work tree for which they were looked at
	tops   map[string]bool // directories whose files are protected: top, repositories and worktrees
	queued map[string]bool
	queue  [ranks][]string
	names  int
	found  [classes]int // that before lacks
	buf    [32 << 10]byte
}

// The order of directories.
const (
	rankFirst    = iota // the top, what before visited, and the directories that the table names there
	rankOrdinary        // others
	rankPackages        // of node_modules and similar directories, which have many
	ranks
)

func (w *autorunWalk) run() {
	for _, dir := range w.before.dirs {
		w.push(dir, rankFirst)
	}
	w.push(".", rankFirst)
	for rank := 0; rank < ranks; {
		if len(w.queue[rank]) == 0 {
			rank++
			continue
		}
		dir := w.queue[rank][0]
		w.queue[rank] = w.queue[rank][1:]
		if len(w.dirs) >= w.most.dirs+len(w.before.dirs) {
			w.unseen(dir)
			return
		}
		w.dir(dir, rank)
	}
}

// push queues a directory once.
func (w *autorunWalk) push(dir string, rank int) {
	if !w.queued[dir] {
		w.queued[dir] = true
		w.queue[rank] = append(w.queue[rank], dir)
	}
}

// unseen records the first directory that was not looked at completely.
func (w *autorunWalk) unseen(dir string) { w.Unseen = cmp.Or(w.Unseen, dir) }

// dir looks at one directory and queues those below it.
func (w *autorunWalk) dir(at string, rank int) {
	names := w.list(at)
	if names == nil {
		return
	}
	w.dirs = append(w.dirs, at)
	w.repository(at, names)
	if m, ok := executorOf(at + "/."); ok && m.top == at && m.guard && w.tops[m.base] {
		w.guards[at] = true
	}
	deepest := strings.Count(at, "/")+1 >= w.most.depth
	slices.SortFunc(names, func(a, b fsutil.Dirent) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range names {
		p := path.Join(at, e.Name)
		switch {
		case e.Type != unix.DT_DIR:
			w.file(p, e)
		case e.Name == ".git":
		case deepest:
			w.unseen(p)
		default:
			w.push(p, rankBelow(p, rank))
		}
	}
}

// rankBelow returns the rank of a directory in one that has rank.
func rankBelow(p string, rank int) int {
	if packages(p) {
		return rankPackages
	}
	if _, named := linkOf(p); named && rank == rankFirst {
		return rankFirst
	}
	return rankOrdinary
}

// file looks at one file that the table may list.
func (w *autorunWalk) file(p string, e fsutil.Dirent) {
	link := e.Type == unix.DT_LNK
	if m, ok := executorOfFile(p, link); ok && packages(p) && !packages(m.top) {
		return // that the directory's own files would have to name
	} else if ok && !m.inGit() {
		w.add(p, m.file(), m.guard && m.top == p && w.tops[m.base])
	} else if f, ok := w.below[p]; ok && link { // it replaces a directory with such files
		w.add(p, f, false)
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
		w.add(git, ofGit(ByItself, at), true)
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
	if w.gits[dir+"\x00"+at] {
		return
	}
	w.gits[dir+"\x00"+at] = true
	for _, name := range []string{"config", "config.worktree", "commondir"} {
		w.add(path.Join(dir, name), ofGit(ByItself, at), true)
	}
	for _, name := range []string{"rebase-merge/git-rebase-todo", "info/attributes"} {
		w.add(path.Join(dir, name), ofGit(Obeyed, at), false)
	}
	w.config(path.Join(dir, "config"), at, 0)
	w.config(path.Join(dir, "config.worktree"), at, 0)
	w.hooks(path.Join(dir, "hooks"), at)
	for _, more := range []string{"modules", "worktrees"} {
		w.link(path.Join(dir, more), at)
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

// link adds a link in place of a directory of git.
func (w *autorunWalk) link(p, tree string) {
	if w.kind(p) == unix.S_IFLNK {
		w.add(p, ofGit(ByItself, tree), false)
	}
}

// hooks looks at a directory of git hooks.
func (w *autorunWalk) hooks(dir, tree string) {
	w.link(dir, tree)
	if w.kind(dir) != unix.S_IFDIR {
		return
	}
	w.guards[dir] = true
	for _, e := range w.list(dir) {
		if !strings.HasSuffix(e.Name, ".sample") {
			w.add(path.Join(dir, e.Name), ofGit(ByItself, tree), false)
		}
	}
}

// add adds a file, if it exists. A link cannot be protected, but a change of it is found. A file that the first walk found
// is outside of the bound.
func (w *autorunWalk) add(p string, f autorunFile, protect bool) {
	if w.kind(p) == 0 {
		return
	}
	if _, known := w.before.files[p]; !known {
		if w.found[f.class] >= w.most.files {
			w.unseen(path.Dir(p))
			return
		}
		w.found[f.class]++
	}
	state, kind := w.state(p)
	if kind == 0 {
		return
	}
	f.state = state
	w.files[p] = f
	if protect && kind == unix.S_IFREG {
		w.guards[p] = true
	}
}

// open opens a path without following links. It blocks on no fifo.
func (w *autorunWalk) open(p string, flags uint64) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	return fsutil.Openat2(w.top, p, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// list reads a directory. It returns nil for other files. If a directory cannot be read, or has too many names, it returns at
// least the names in the table that exist there.
func (w *autorunWalk) list(dir string) []fsutil.Dirent {
	fd, err := w.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	switch err {
	case nil:
		defer unix.Close(fd)
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV:
		return nil
	default:
		if m, ok := executorOf(dir + "/x"); ok { // a program may read what the walk cannot list
			f := m.file()
			f.state = err.Error()
			w.files[dir] = f
		}
		return w.lookup(dir, nil)
	}
	all := []fsutil.Dirent{}
	for w.names <= w.most.names && len(all) <= w.most.list {
		n, err := unix.Getdents(fd, w.buf[:])
		if err != nil {
			break
		}
		if n <= 0 {
			return all
		}
		for _, e := range fsutil.ParseDirents(w.buf[:n]) {
			w.names++
			e.Type = w.typeOf(fd, e)
			all = append(all, e)
		}
	}
	return w.lookup(dir, all)
}

// lookup adds to a directory's names the names in the table that exist there.
func (w *autorunWalk) lookup(dir string, all []fsutil.Dirent) []fsutil.Dirent {
	w.unseen(dir)
	listed := map[string]bool{}
	for _, e := range all {
		listed[e.Name] = true
	}
	all = append([]fsutil.Dirent{}, all...)
	for name := range executorTable().known {
		if kind := w.kind(path.Join(dir, name)); kind != 0 && !listed[name] {
			all = append(all, fsutil.Dirent{Name: name, Type: byte(kind >> 12)}) // as IFTODT of dirent.h
		}
	}
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
