package limits

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDescriptors is how many descriptors of a sandbox are looked at, once.
const maxDescriptors = 200_000

// search looks for the files of a sandbox that no directory has: in the descriptors of
// its threads, each table of them once, and in what its processes have mapped.
type search struct {
	dev     uint64 // st_dev of the directory
	overlay uint64 // and of the sandbox's overlay, if what is written to that is there; 0: it is not
	super   uint64 // and as proc_pid_maps(5) has it

	seen   map[uint64]bool // inodes that are counted
	left   int             // descriptors that may still be looked at
	mapped []uint64        // inodes of mapped files without a name

	tally        // of files that are open and have no name
	where string // else there may be more, whose size cannot be told; "": there cannot
}

// unnamed searches all processes of the sandbox.
func (d *disk) unnamed(pid1 int) *search {
	s := &search{dev: d.dev, seen: map[uint64]bool{}, left: maxDescriptors}
	s.super = superDevice(d.dir, pid1)
	if d.upper {
		s.overlay = overlayOf(pid1)
	}
	pids, _ := processes(pid1)
	for _, pid := range pids {
		s.process(pid)
	}
	for _, ino := range s.mapped {
		if s.where == "" && !s.seen[ino] {
			s.where = "files that are mapped, and neither open nor in a directory"
		}
	}
	return s
}

// process looks at a process by its threads: one that has exited has neither descriptors
// nor memory, and each may have descriptors of its own (clone(2), CLONE_FILES).
func (s *search) process(pid int) {
	first, mapped := 0, false
	for _, tid := range threads(pid) {
		if first != 0 && sameTable(first, tid) {
			continue
		}
		if s.table(tid) && first == 0 {
			first = tid
		}
		mapped = mapped || s.maps(tid)
	}
}

// sameTable says whether two threads have the same descriptors.
func sameTable(a, b int) bool {
	const kcmpFiles = 2 // kcmp(2)
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}

// table counts the descriptors of a thread; false if it has none, as one that has exited.
func (s *search) table(tid int) (some bool) {
	dir, err := os.Open("/proc/" + strconv.Itoa(tid) + "/fd")
	if err != nil {
		s.unreadable(err)
		return false
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			s.descriptor(tid, int(dir.Fd()), name)
		}
		some = some || len(names) > 0
		if err != nil || s.left <= 0 {
			return some
		}
	}
}

func (s *search) descriptor(tid, dir int, name string) {
	if s.left--; s.left == 0 {
		s.where = fmt.Sprintf("more than %d descriptors", maxDescriptors)
	}
	var st unix.Stat_t
	// Following the link of /proc asks the open file itself, not a path.
	if s.left < 0 || unix.Fstatat(dir, name, &st, 0) != nil {
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Nlink == 0 && !s.seen[st.Ino] && (st.Dev == s.dev || s.overlay != 0 && overlaid(tid, name)) {
			s.seen[st.Ino] = true
			s.bytes += st.Blocks * 512
			s.files++
		}
	case unix.S_IFSOCK:
		if s.where == "" && sent("/proc/"+strconv.Itoa(tid)+"/fdinfo/"+name) > 0 {
			s.where = "descriptors on their way through sockets"
		}
	}
}

// overlaid says whether a descriptor is of a file in an overlay: its st_dev need not be the overlay's.
func overlaid(tid int, name string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(fmt.Sprintf("/proc/%d/fd/%s", tid, name), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// sent is how many descriptors wait in a unix socket to be received (Linux 5.7).
func sent(fdinfo string) int64 {
	var buf [1024]byte
	text, err := slurp(fdinfo, buf[:])
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("scm_fds:")); ok {
			return field(rest, 0)
		}
	}
	return 0
}

// unreadable notes what cannot be searched; what has ended is no such thing.
func (s *search) unreadable(err error) {
	if os.IsPermission(err) && s.where == "" {
		s.where = "processes whose files cannot be read"
	}
}

// maps notes what of the device is mapped and has no name; false if the thread has no memory.
func (s *search) maps(tid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/maps")
	if err != nil {
		s.unreadable(err)
		return false
	}
	for line := range bytes.Lines(text) {
		if ino, ok := s.deleted(string(bytes.TrimRight(line, "\n"))); ok {
			s.mapped = append(s.mapped, ino)
		}
	}
	return len(text) > 0
}

// deleted is the inode in a line of maps, if it is of a file of the device without a name:
//
//	7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 fe:00 1234      /out/#1234 (deleted)
func (s *search) deleted(line string) (ino uint64, ok bool) {
	w := strings.Fields(line)
	if len(w) < 6 || !strings.HasSuffix(line, " (deleted)") {
		return 0, false
	}
	dev, bad := device(w[3], "%x:%x")
	ino, err := strconv.ParseUint(w[4], 10, 64)
	return ino, !bad && err == nil && (dev == s.dev || dev == s.super || s.overlay != 0 && dev == s.overlay)
}

// device reads a device number.
func device(text, format string) (dev uint64, bad bool) {
	var major, minor uint32
	n, _ := fmt.Sscanf(text, format, &major, &minor)
	return unix.Mkdev(major, minor), n != 2
}

// overlayOf is the device of the overlay at a sandbox's root, 0 if there is none.
func overlayOf(pid1 int) uint64 {
	root := fmt.Sprintf("/proc/%d/root/", pid1)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(root, &fs) != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC || unix.Stat(root, &st) != nil {
		return 0
	}
	return st.Dev
}

// superDevice is the device that maps of files in dir name, which on btrfs is not the one
// that stat(2) tells; 0 if it is not known. A mount is in our mount namespace or in the sandbox's.
func superDevice(dir *os.File, pid1 int) uint64 {
	var st unix.Statx_t
	if unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	id := []byte(strconv.FormatUint(st.Mnt_id, 10) + " ")
	for _, of := range []string{"self", strconv.Itoa(pid1)} {
		for line := range bytes.Lines(slurpAll("/proc/"+of+"/mountinfo", nil)) {
			if w := bytes.Fields(line); bytes.HasPrefix(line, id) && len(w) > 2 {
				dev, _ := device(string(w[2]), "%d:%d")
				return dev
			}
		}
	}
	return 0
}
