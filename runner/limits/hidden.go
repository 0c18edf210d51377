package limits

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The bounds of one search. A workload chooses how many processes, descriptors and mappings there are, and what
// exceeds a bound is a place that may hide files.
const (
	maxExamined = 200_000 // threads, descriptors and mappings of one search
	maxMappings = 4096    // of files, in one process
	sockets     = 4       // descriptors that cost as much as one of a socket
	passes      = 4       // attempts to find all processes at once
)

// search looks for the sandbox's files that have no name in any directory. It examines each descriptor table of
// its threads once, and the memory mappings and programs of its processes.
type search struct {
	dev     uint64      // st_dev of the directory
	overlay uint64      // st_dev of the sandbox's overlay if its upper is in the directory, else 0
	super   uint64      // the directory's device number as proc_pid_maps(5) shows it
	mounts  unix.Stat_t // the mount namespace of the sandbox
	quit    <-chan struct{}

	seen   map[uint64]bool // inodes already counted
	left   int             // what may still be examined
	mapped []uint64        // inodes of mapped files without a name
	moving bool            // processes began while the search ran

	tally        // open files without a name
	where string // a place that may hide files of unknown size; "" if none
}

// unnamed searches all processes of the sandbox. A process that begins during the search may have taken over files
// of one that has ended since, so the search then begins again.
func (d *disk) unnamed(pid1 int, quit <-chan struct{}) (s *search) {
	for range passes {
		s = &search{dev: d.dev, super: superDevice(d.dir, pid1), quit: quit, seen: map[uint64]bool{}, left: maxExamined}
		if d.upper {
			s.overlay = overlayOf(pid1)
		}
		_ = unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid1), &s.mounts)
		s.all(pid1)
		if s.where != "" || !s.moving || s.left < maxExamined-maxExamined/passes || closed(quit) {
			break
		}
	}
	return s
}

// all searches the processes that exist now.
func (s *search) all(pid1 int) {
	pids, _ := processesUpTo(pid1, maxExamined)
	known := make(map[int]bool, len(pids))
	for _, pid := range pids {
		known[pid] = true
		if s.process(pid); s.left < 0 || closed(s.quit) {
			break
		}
	}
	for _, ino := range s.mapped {
		if !s.seen[ino] {
			s.hides("mapped files that are neither open nor in a directory")
		}
	}
	if s.where == "" {
		pids, _ = processesUpTo(pid1, maxExamined)
		s.moving = slices.ContainsFunc(pids, func(pid int) bool { return !known[pid] })
	}
}

// hides records a place that may hide files. The first one is reported.
func (s *search) hides(where string) {
	if s.where == "" {
		s.where = where
	}
}

// spend accounts for the examination of n things, and reports whether it may take place.
func (s *search) spend(n int) bool {
	if s.left -= n; s.left < 0 {
		s.hides(fmt.Sprintf("more than %d threads, descriptors and mappings", maxExamined))
	}
	return s.left >= 0
}

// process searches a process thread by thread. An exited thread has neither descriptors nor memory, and each
// thread may have its own descriptor table (clone(2), CLONE_FILES) and mounts (CLONE_NEWNS).
func (s *search) process(pid int) {
	first, mapped := 0, false
	tids, err := threads(pid)
	if err != nil {
		s.hides("a process that cannot be read")
	}
	for _, tid := range tids {
		if !s.spend(1) {
			return
		}
		s.namespace(tid)
		if first != 0 && sameTable(first, tid) {
			continue
		}
		if s.table(tid) && first == 0 {
			first = tid
		}
		if !mapped && s.maps(tid) {
			mapped = true
			s.program(tid)
		}
	}
}

// namespace finds mounts that only some processes have. A mount of a file keeps it after its last name is removed.
func (s *search) namespace(tid int) {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", tid), &st) == nil && s.mounts.Ino != 0 && st.Ino != s.mounts.Ino {
		s.hides("mount namespaces of processes")
	}
}

// program counts the file that a process executes. A process may unmap and remove its own program.
func (s *search) program(tid int) {
	path := fmt.Sprintf("/proc/%d/exe", tid)
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); err {
	case nil:
		s.regular(&st, path)
	default:
		s.unreadable(err)
	}
}

// regular counts a regular file without a name. path leads to it through /proc.
func (s *search) regular(st *unix.Stat_t, path string) {
	if st.Nlink == 0 && !s.seen[st.Ino] && (st.Dev == s.dev || s.overlay != 0 && overlaid(path)) {
		s.seen[st.Ino] = true
		s.bytes += st.Blocks * 512
		s.files++
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
			if !s.spend(1) || closed(s.quit) {
				return true
			}
			s.descriptor(tid, int(dir.Fd()), name)
		}
		some = some || len(names) > 0
		if err != nil {
			return some
		}
	}
}

func (s *search) descriptor(tid, dir int, name string) {
	var st unix.Stat_t
	// Following the link in /proc reaches the open file itself, not a path.
	if unix.Fstatat(dir, name, &st, 0) != nil {
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if s.regular(&st, fmt.Sprintf("/proc/%d/fd/%s", tid, name)); st.Dev == s.mounts.Dev && st.Ino != s.mounts.Ino {
			s.foreign(dir, name)
		}
	case unix.S_IFSOCK:
		if s.spend(sockets) && sent("/proc/"+strconv.Itoa(tid)+"/fdinfo/"+name) > 0 {
			s.hides("descriptors in transit through sockets")
		}
	}
}

// foreign finds a descriptor of a mount namespace, which keeps its mounts.
func (s *search) foreign(dir int, name string) {
	var link [64]byte
	if n, err := unix.Readlinkat(dir, name, link[:]); err == nil && bytes.HasPrefix(link[:n], []byte("mnt:")) {
		s.hides("mount namespaces of descriptors")
	}
}

// overlaid reports whether path leads to a file on an overlay. Its st_dev may differ from the overlay's.
func overlaid(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
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

// unreadable records that a process cannot be searched. It ignores processes that have ended, and those that
// execute no program, such as zombies.
func (s *search) unreadable(err error) {
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
		s.hides("processes whose files cannot be read")
	}
}

// maps collects mapped files of the device that have no name. It returns false if the thread has no memory. It
// reads line by line: a process may have more mappings than the runner has memory for.
func (s *search) maps(tid int) (some bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(tid) + "/maps")
	if err != nil {
		s.unreadable(err)
		return false
	}
	defer f.Close()
	files := 0
	for r := bufio.NewReaderSize(f, 16<<10); ; some = true {
		line, err := r.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			s.hides("mapped files with long names")
			return true
		case err != nil:
			return some
		case !s.spend(1) || closed(s.quit):
			return true
		}
		if line = bytes.TrimRight(line, "\n"); bytes.IndexByte(line, '/') < 0 {
			continue
		}
		if files++; files > maxMappings {
			s.hides(fmt.Sprintf("a process with more than %d mappings of files", maxMappings))
			return true
		}
		if ino, ok := s.deleted(line); ok {
			s.mapped = append(s.mapped, ino)
		}
	}
}

// deleted returns the inode in a line of maps if the line shows a nameless file of the device:
//
//	7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 fe:00 1234      /out/#1234 (deleted)
func (s *search) deleted(line []byte) (ino uint64, ok bool) {
	if !bytes.HasSuffix(line, []byte(" (deleted)")) {
		return 0, false
	}
	w := strings.Fields(string(line))
	if len(w) < 6 {
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
