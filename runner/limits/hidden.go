package limits

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDescriptors bounds the descriptors examined in one search of a sandbox.
const maxDescriptors = 200_000

// search looks for the sandbox's files that have no name in any directory. It examines each descriptor table of
// its threads once, and the memory mappings of its processes.
type search struct {
	dev     uint64 // st_dev of the directory
	overlay uint64 // st_dev of the sandbox's overlay if its upper is in the directory, else 0
	super   uint64 // the directory's device number as proc_pid_maps(5) shows it

	seen   map[uint64]bool // inodes already counted
	left   int             // descriptors that may still be examined
	mapped []uint64        // inodes of mapped files without a name

	tally        // open files without a name
	where string // a place that may hide files of unknown size; "" if none
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
			s.where = "mapped files that are neither open nor in a directory"
		}
	}
	return s
}

// process searches a process thread by thread. An exited thread has neither descriptors nor memory, and each
// thread may have its own descriptor table (clone(2), CLONE_FILES).
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

// sameTable reports whether two threads share a descriptor table.
func sameTable(a, b int) bool {
	const kcmpFiles = 2 // kcmp(2)
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}

// table counts the descriptors of a thread. It returns false if the thread has none, as after its exit.
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
	// Following the link in /proc reaches the open file itself, not a path.
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
			s.where = "descriptors in transit through sockets"
		}
	}
}

// overlaid reports whether a descriptor refers to a file on an overlay. Its st_dev may differ from the
// overlay's.
func overlaid(tid int, name string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(fmt.Sprintf("/proc/%d/fd/%s", tid, name), &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// sent returns the number of descriptors that wait in a unix socket to be received (scm_fds, Linux 5.7).
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

// unreadable records that a process cannot be searched. It ignores processes that have ended.
func (s *search) unreadable(err error) {
	if os.IsPermission(err) && s.where == "" {
		s.where = "processes whose files cannot be read"
	}
}

// maps collects mapped files of the device that have no name. It returns false if the thread has no memory.
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

// deleted returns the inode in a line of maps if the line shows a nameless file of the device:
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

// device parses a device number. bad reports a parse failure.
func device(text, format string) (dev uint64, bad bool) {
	var major, minor uint32
	n, _ := fmt.Sscanf(text, format, &major, &minor)
	return unix.Mkdev(major, minor), n != 2
}

// overlayOf returns the device of the overlay at the sandbox's root, or 0 if the root is not an overlay.
func overlayOf(pid1 int) uint64 {
	root := fmt.Sprintf("/proc/%d/root/", pid1)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(root, &fs) != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC || unix.Stat(root, &st) != nil {
		return 0
	}
	return st.Dev
}

// superDevice returns the device number that proc_pid_maps(5) shows for files in dir, or 0 if it is unknown. On
// btrfs it differs from st_dev. The mount of dir is in the runner's mount namespace or in the sandbox's.
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
