package limits

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxEntries is how large a directory may be for its files to be counted one by
// one; beyond, the file system as a whole is looked at.
const maxEntries = 100_000

// usage is what a walk found below a directory.
type usage struct {
	bytes   int64
	entries int
	whole   bool // false: too many entries, too deep, or not readable
}

// measure sums the disk space allocated below dir. The sandbox may be changing the
// tree, and means harm: no link is followed, no mount entered, nothing outside dir
// opened, one descriptor used at a time whatever the depth. It ends early after
// maxEntries, past enough bytes (≤ 0: never), or when quit is closed.
func measure(dir *os.File, enough int64, quit <-chan struct{}) (u usage) {
	u.whole = true
	links := map[uint64]bool{} // inodes with several names, already counted
	stack := []string{"."}
	for len(stack) > 0 {
		path := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		err := list(dir, path, func(name string, st *unix.Stat_t) bool {
			u.entries++
			if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				if links[st.Ino] {
					return u.entries < maxEntries
				}
				links[st.Ino] = true
			}
			u.bytes += st.Blocks * 512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				stack = append(stack, path+"/"+name)
			}
			return u.entries < maxEntries
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			u.whole = false // and the rest is still worth counting
		}
		switch {
		case u.entries >= maxEntries:
			u.whole = false
			return u
		case enough > 0 && u.bytes > enough:
			return u
		}
		select {
		case <-quit:
			return u
		default:
		}
	}
	return u
}

// list calls each for every entry of the directory at path below dir until it
// says false.
func list(dir *os.File, path string, each func(name string, st *unix.Stat_t) bool) error {
	fd, err := unix.Openat2(int(dir.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for {
		names, err := f.Readdirnames(512)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if !each(name, &st) {
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

// nameless sums the files on device dev that the processes hold open and that have
// no name any more: they fill a disk without being in any directory.
func nameless(pids []int, dev uint64) (bytes int64) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			var st unix.Stat_t
			// Following the link of /proc asks the open file itself, not a path.
			if unix.Fstatat(int(dir.Fd()), name, &st, 0) != nil {
				continue
			}
			if st.Nlink == 0 && st.Dev == dev && st.Mode&unix.S_IFMT == unix.S_IFREG && !seen[st.Ino] {
				seen[st.Ino] = true
				bytes += st.Blocks * 512
			}
		}
		dir.Close()
	}
	return bytes
}
