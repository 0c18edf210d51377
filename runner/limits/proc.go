package limits

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

var pageSize = int64(os.Getpagesize())

// slurp reads a small file of /proc with three system calls and no allocation.
func slurp(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// slurpAll appends a file of any length to buf. /proc returns one page per read.
func slurpAll(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return buf
	}
	defer unix.Close(fd)
	for {
		buf = slices.Grow(buf, 4096)
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err != nil || n <= 0 {
			return buf
		}
		buf = buf[:len(buf)+n]
	}
}

// maxProcesses stops a walk that chases a fork bomb.
const maxProcesses = 1 << 16

// processes lists pid1 and all its descendants, numbered in the runner's pid namespace. These are all processes
// of the sandbox's pid namespace, because orphans become children of pid1. A process forked during the walk may
// be missing until the next walk. tasks counts the threads.
func processes(pid1 int) (pids []int, tasks int) { return processesUpTo(pid1, math.MaxInt) }

// processesUpTo ends the walk when it has found more than most threads.
func processesUpTo(pid1, most int) (pids []int, tasks int) {
	out := []int{pid1}
	var text []byte
	for i := 0; i < len(out) && len(out) < maxProcesses && tasks <= most; i++ {
		path := "/proc/" + strconv.Itoa(out[i]) + "/task"
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		tasks += len(names)
		for _, t := range names {
			text = slurpAll(path+"/"+t+"/children", text[:0])
			for f := range bytes.FieldsSeq(text) {
				if n, err := strconv.Atoi(string(f)); err == nil {
					out = append(out, n)
				}
			}
		}
	}
	return out, tasks
}

// resident sums the resident pages of pids and counts shared pages once per process: a cheap upper bound. alive
// is false when pid1, the first element, is gone.
//
// A process whose main thread has exited shows no memory, although its other threads use some. resident then
// replaces it in pids by one of these threads, for which /proc also has a directory.
func resident(pids []int) (bytes int64, alive bool) {
	for i, pid := range pids {
		pages, err := statm(pid)
		if err != nil {
			if i == 0 && (err == unix.ENOENT || err == unix.ESRCH) {
				return 0, false
			}
			continue
		}
		if pages == 0 {
			pids[i], pages = living(pid)
		}
		bytes += pages * pageSize
	}
	return bytes, true
}

// statm returns the resident pages of the process of thread tid, or 0 if the thread has exited.
func statm(tid int) (pages int64, err error) {
	var buf [256]byte
	text, err := slurp("/proc/"+strconv.Itoa(tid)+"/statm", buf[:])
	if err != nil {
		return 0, err
	}
	return field(text, 1), nil
}

// living finds a live thread of a process whose main thread has exited, and returns the process's pages. A
// workload may start and end threads on purpose, so living tries several times. It returns pid and 0 for a
// zombie.
func living(pid int) (tid int, pages int64) {
	for range 4 {
		tids, _ := threads(pid)
		for _, tid := range tids {
			if pages, err := statm(tid); err == nil && pages > 0 {
				return tid, pages
			}
		}
		if len(tids) < 2 {
			break
		}
	}
	return pid, 0
}

// field returns the i-th number of a line, counted from 0.
func field(line []byte, i int) int64 {
	for f := range bytes.FieldsSeq(line) {
		if i == 0 {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			return n
		}
		i--
	}
	return 0
}

// proportional sums the memory that pids really use: anonymous and shared memory, each page divided by the
// number of its users, and swap. It excludes pages of files on disk. The kernel walks page tables for this, so
// it is used only near the limit. ok is false if the value is unavailable.
func proportional(pids []int) (total int64, ok bool) {
	buf := make([]byte, 4096)
	for i, pid := range pids {
		text, err := slurp("/proc/"+strconv.Itoa(pid)+"/smaps_rollup", buf)
		if err != nil {
			if i == 0 {
				return 0, false
			}
			continue // the process has ended or is ending
		}
		total += rollup(text)
	}
	return total, true
}

// rollup parses smaps_rollup. Before Linux 5.9 it has no Pss_Anon and Pss_Shmem, so Pss replaces them.
func rollup(text []byte) int64 {
	anon, ok := labelled(text, "Pss_Anon:")
	shmem, _ := labelled(text, "Pss_Shmem:")
	if !ok {
		anon, _ = labelled(text, "Pss:")
	}
	swap, _ := labelled(text, "SwapPss:")
	return anon + shmem + swap
}

// labelled returns the number of KiB behind label, in bytes.
func labelled(text []byte, label string) (int64, bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(label)); ok {
			return field(rest, 0) << 10, true
		}
	}
	return 0, false
}

// meminfo returns one of the first three lines of /proc/meminfo in bytes (MemTotal, MemFree, MemAvailable:
// proc(5)). Where /proc shows only processes, it returns what sysinfo(2) knows. Watchers read it often, and reading the whole file would be the runner's
// largest waste.
func meminfo(name string) int64 {
	text, err := slurp("/proc/meminfo", make([]byte, 256))
	if err != nil {
		return sysinfoMemory(name)
	}
	n, _ := labelled(text, name+":")
	return n
}

// sysinfoMemory counts as available only what no file in the page cache uses: less than there is.
func sysinfoMemory(name string) int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	switch name {
	case "MemTotal":
		return int64(s.Totalram) * int64(s.Unit)
	case "MemAvailable":
		return int64(s.Freeram+s.Bufferram) * int64(s.Unit)
	}
	return int64(s.Freeram) * int64(s.Unit)
}

// rootUsed returns the size of the files in the sandbox's tmpfs at /, which also use memory.
func rootUsed(pid1 int) int64 {
	var fs unix.Statfs_t
	err := unix.Statfs(fmt.Sprintf("/proc/%d/root/", pid1), &fs)
	if err != nil || fs.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(fs.Blocks-fs.Bfree) * fs.Bsize
}
