package upper

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

const (
	maxOpen   = 32      // descriptors a walk of 100,000 levels keeps open, in addition to the top's; from this depth on it reads small pieces
	openEach  = 4       // levels that a walk keeps open for each power of this number: see keeps
	maxSorted = 1 << 16 // names that a sorted walk holds; a directory with more is visited in pieces
)

// errMoved reports that a directory had moved when the walk came back up to it.
var errMoved = errors.New("moved while it was walked")

// A walk visits everything below an untrusted directory. It follows no link, enters no other mount, and holds few
// descriptors however deep or wide the tree is. A level takes some 100 bytes, and so does each of its few
// directories that wait to be entered. So the number of directories bounds the memory.
//
// Only some levels are open at once: see keeps. On the way up a closed one is opened again by the names below the next
// open one above it, or as ".." if one of these was renamed meanwhile. The walk compares it with its recorded identity,
// and reads on from where it left it. The kernel compares each ".." below a bind mount with all levels above it
// (path_connected in fs/namei.c), so that ".." alone would take a time that grows with the square of the depth.
type walk struct {
	// visit is called for each name with the result of statx; the top has the name "". Operations on (at, name)
	// must use AT_EMPTY_PATH and AT_SYMLINK_NOFOLLOW.
	visit  func(at int, name string, st *unix.Statx_t) error
	mount  uint64
	sorted bool // visit the names of a directory in order
	levels []level
	most   int // levels; 0: no bound
	// foreign reports whether a directory of this owner may be inaccessible without that being a failure; nil:
	// always a failure.
	foreign func(uid uint32) bool
	buf     [32 << 10]byte
	queued  int // pending directories of all levels
	failed  int
	err     error // the first failure
	enough  bool  // set by visit: no more
}

type level struct {
	name    string
	fd      int // -1 while closed
	id      fileID
	next    int64 // offset of the next entry to read
	pending []child
}

type child struct {
	name string
	id   fileID
	uid  uint32
}

type fileID struct {
	major, minor uint32
	ino          uint64
}

func idOf(st *unix.Statx_t) fileID { return fileID{st.Dev_major, st.Dev_minor, st.Ino} }

// run walks. It continues after a failure, and returns the first one with the number of the others.
func (w *walk) run(top *os.File) error { return w.runFD(int(top.Fd())) }

func (w *walk) runFD(top int) error {
	fd, err := unix.Openat(top, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer w.close()
	w.levels = []level{{fd: fd}}
	st, err := stat(fd, "")
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	w.mount, w.levels[0].id = st.Mnt_id, idOf(st)
	if err := w.visit(fd, "", st); err != nil {
		return err
	}
	for len(w.levels) > 0 && !w.enough {
		w.step()
	}
	return w.result()
}

// step enters one directory, or reads on in this one, or goes up.
func (w *walk) step() {
	here := &w.levels[len(w.levels)-1]
	if n := len(here.pending); n > 0 {
		next := here.pending[n-1]
		here.pending = here.pending[:n-1]
		w.queued--
		w.down(here.fd, next)
		return
	}
	if !w.read(here) {
		w.up()
	}
}

// read visits some names of a directory and queues the directories among them. It reads one buffer of names, which is
// smaller at greater depth, so that the queue stays bounded. A sorted walk reads all names, within the same bound.
func (w *walk) read(here *level) (more bool) {
	names, more := w.names(here)
	queued := len(here.pending)
	for _, name := range names {
		st, err := stat(here.fd, name)
		if err != nil {
			w.note(name, err)
			continue
		}
		if st.Mnt_id != w.mount {
			continue
		}
		if err := w.visit(here.fd, name, st); err != nil {
			w.note(name, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			here.pending = append(here.pending, child{name, idOf(st), st.Uid})
			w.queued++
		}
	}
	slices.Reverse(here.pending[queued:]) // step takes the last first
	return more
}

// names reads names. more: there may be others.
func (w *walk) names(here *level) (names []string, more bool) {
	buf := w.buf[:]
	if len(w.levels) > maxOpen {
		buf = buf[:512]
	}
	for {
		n, err := unix.Getdents(here.fd, buf)
		if err != nil {
			w.note("", err)
		}
		if n <= 0 {
			break
		}
		more = true
		for _, e := range fsutil.ParseDirents(buf[:n]) {
			here.next = e.Next
			names = append(names, e.Name)
		}
		if !w.sorted || w.queued+len(names) > maxSorted {
			break
		}
	}
	if w.sorted {
		slices.Sort(names)
	}
	return names, more
}

// keeps reports whether a walk at a depth keeps a level open: of the multiples of each power of openEach, the openEach
// nearest ones. To open all levels again on the way up then takes as many steps for each level as there are powers.
func keeps(level, depth int) bool {
	for step := 1; step <= depth; step *= openEach {
		if level%step == 0 && depth-level <= step*openEach {
			return true
		}
	}
	return level == 0
}

// shut closes a level, unless the walk keeps it open at a depth.
func (w *walk) shut(level, depth int) {
	if l := &w.levels[level]; l.fd >= 0 && !keeps(level, depth) {
		unix.Close(l.fd)
		l.fd = -1
	}
}

// down enters a directory, and closes those that are too far above.
func (w *walk) down(at int, c child) {
	if w.most > 0 && len(w.levels) >= w.most {
		w.note(c.name, errors.New("too deep"))
		return
	}
	fd, err := enter(at, c.name)
	if err == unix.EACCES && w.foreign != nil && w.foreign(c.uid) {
		return
	}
	if err != nil {
		w.note(c.name, err)
		return
	}
	w.levels = append(w.levels, level{name: c.name, fd: fd, id: c.id})
	depth := len(w.levels) - 1
	for step := 1; step < depth; step *= openEach {
		if far := depth - 1 - step*openEach; far > 0 {
			w.shut(far, depth)
		}
	}
}

// up leaves a directory. If the one above cannot be opened again, the walk gives up all closed levels; the top is
// never closed.
func (w *walk) up() {
	last := w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	defer unix.Close(last.fd)
	if len(w.levels) == 0 {
		return
	}
	above := &w.levels[len(w.levels)-1]
	if above.fd >= 0 || w.descend() == nil {
		return
	}
	fd, err := above.reopen(last.fd, "..")
	if err == nil {
		above.fd = fd
		return
	}
	w.note("..", err)
	for w.levels[len(w.levels)-1].fd < 0 {
		w.levels = w.levels[:len(w.levels)-1]
	}
}

// descend opens the last level again by its names below the next open one, and on the way each level that the walk keeps.
func (w *walk) descend() error {
	last := len(w.levels) - 1
	from := last - 1
	for w.levels[from].fd < 0 {
		from--
	}
	for i := from + 1; i <= last; i++ {
		l := &w.levels[i]
		fd, err := l.reopen(w.levels[i-1].fd, l.name)
		if err != nil {
			return err
		}
		l.fd = fd
		w.shut(i-1, last)
	}
	return nil
}

// reopen opens a level again, by a name in another directory.
func (l *level) reopen(at int, name string) (int, error) {
	fd, err := enter(at, name)
	if err != nil {
		return -1, err
	}
	st, err := stat(fd, "")
	if err == nil && idOf(st) != l.id {
		err = errMoved
	}
	if err == nil {
		_, err = unix.Seek(fd, l.next, unix.SEEK_SET)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func enter(at int, name string) (int, error) {
	return fsutil.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
}

func stat(at int, name string) (*unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(at, name, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
		unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	return &st, err
}

// note keeps the first failure and counts the rest. A name that vanished meanwhile is not a failure.
func (w *walk) note(name string, err error) {
	if errors.Is(err, unix.ENOENT) {
		return
	}
	w.failed++
	if w.err == nil {
		w.err = fmt.Errorf("%q at depth %d: %w", name, len(w.levels), err)
	}
}

func (w *walk) result() error {
	if w.failed > 1 {
		return fmt.Errorf("%w (and %d more)", w.err, w.failed-1)
	}
	return w.err
}

func (w *walk) close() {
	for _, l := range w.levels {
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
	}
}
