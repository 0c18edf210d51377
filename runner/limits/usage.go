package limits

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// maxEntries is the largest directory whose files are counted one by one. Beyond it, the loss of the whole file
// system counts.
const maxEntries = 100_000

// A walk does a bounded amount of work. Names that vanish before they are counted are work too, as is each
// component of a path: a chain of directories as deep as PATH_MAX takes two million lookups.
const (
	maxNames = 2 * maxEntries
	maxPaths = 8 << 20 // bytes of all paths of directories
)

// tally is the space that files use on a file system.
type tally struct{ bytes, files int64 }

func (t tally) plus(o tally) tally  { return tally{t.bytes + o.bytes, t.files + o.files} }
func (t tally) minus(o tally) tally { return tally{t.bytes - o.bytes, t.files - o.files} }
func (t tally) atLeast(o tally) tally {
	return tally{max(t.bytes, o.bytes), max(t.files, o.files)}
}

func (t tally) atMost(o tally) tally {
	return tally{min(t.bytes, o.bytes), min(t.files, o.files)}
}

// passes reports whether t exceeds the limit; [None] is unlimited.
func (t tally) passes(limit tally) bool {
	return limit.bytes != None && t.bytes > limit.bytes || limit.files != None && t.files > limit.files
}

// usage is the result of a walk below a directory.
type usage struct {
	tally
	whole bool     // false after too much work, excessive depth, or an unreadable directory
	dirs  []string // directories that were listed
	began unix.Timespec
}

// measure sums the disk space allocated below dir. It assumes a hostile sandbox that changes the tree
// meanwhile. It follows no link, enters no mount, opens nothing outside dir, and uses one descriptor at a time
// at any depth. It stops early after maxEntries, past enough, or when quit is closed.
func measure(dir *os.File, enough tally, quit <-chan struct{}) (u usage) {
	u.whole = true
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &u.began) // the clock of file timestamps
	links := map[uint64]bool{}                                  // inodes with several names, already counted
	names, paths := 0, 0
	for stack := []string{"."}; len(stack) > 0; {
		path := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		u.dirs = append(u.dirs, path)
		paths += len(path)
		err := list(dir, path, func(name string, st *unix.Stat_t) bool {
			if names++; st == nil {
				return names < maxNames
			}
			u.files++
			if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				if links[st.Ino] {
					return u.files < maxEntries
				}
				links[st.Ino] = true
			}
			u.bytes += st.Blocks * 512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				stack = append(stack, path+"/"+name)
			}
			return u.files < maxEntries && (names%512 != 0 || !closed(quit))
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			u.whole = false // keep counting the rest
		}
		switch {
		case u.files >= maxEntries, names >= maxNames, paths >= maxPaths:
			u.whole = false
			return u
		case u.passes(enough), closed(quit):
			return u
		}
	}
	return u
}

func closed(quit <-chan struct{}) bool {
	select {
	case <-quit:
		return true
	default:
		return false
	}
}

// steady reports whether no directory has changed since the walk began. Otherwise files may have moved from a
// part not yet walked to a part already walked.
func (u usage) steady(dir *os.File, quit <-chan struct{}) bool {
	for _, path := range u.dirs {
		if closed(quit) {
			return false
		}
		fd, err := openBelow(dir, path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil || st.Ctim.Nano() >= u.began.Nano() {
			return false
		}
	}
	return true
}

// openBelow opens path below dir without following links or crossing mounts.
func openBelow(dir *os.File, path string, flags uint64) (int, error) {
	return fsutil.Openat2(int(dir.Fd()), path, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// list calls each for every entry of the directory at path below dir until each returns false. st is nil for a name
// that has vanished.
func list(dir *os.File, path string, each func(name string, st *unix.Stat_t) bool) error {
	fd, err := openBelow(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for {
		names, err := f.Readdirnames(512)
		for _, name := range names {
			var st unix.Stat_t
			found := &st
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				found = nil
			}
			if !each(name, found) {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ledger sums the measured writes of a runner's sandboxes by file system. A loss that one sandbox accounts for
// is not attributed to another. Entries are never removed, because an ended sandbox leaves its files.
type ledger struct {
	mu  sync.Mutex
	sum map[uint64]tally
}

// add records a change on a device and returns the sum.
func (l *ledger) add(dev uint64, change tally) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum == nil {
		l.sum = map[uint64]tally{}
	}
	l.sum[dev] = l.sum[dev].plus(change)
	return l.sum[dev]
}
