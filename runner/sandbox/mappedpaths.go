package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errUnclear means that the mapped files cannot be determined.
var errUnclear = errors.New("mapped files cannot be determined")

// mappedPaths lists the files that descendants of pid1 have mapped shared and writable. The paths are as in proc_pid_maps(5),
// inside the sandbox. Mapped omits memfds, anonymous memory and /dev, which are not on a disk. The processes must be paused.
func mappedPaths(pid1 int) (paths []string, err error) {
	memory, err := memoryDevice()
	if err != nil {
		return nil, err
	}
	pids, err := descendants(pid1)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/maps")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			path, ok := mappedFile(lines.Text(), memory)
			if ok && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		f.Close()
		if err := lines.Err(); err != nil && !errors.Is(err, unix.ESRCH) { // the process is dead
			return nil, err
		}
	}
	if slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, `\`) }) { // an escaped newline or a backslash
		return nil, errUnclear
	}
	return paths, nil
}

// mappedFile returns the path in a line of maps, if the line shows a shared, writable mapping of a file:
//
//	7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:2f 1234      /root/x.db-shm
func mappedFile(line, memory string) (path string, ok bool) {
	f := strings.SplitN(line, " ", 6)
	if len(f) < 6 || !strings.Contains(f[1], "w") || !strings.HasSuffix(f[1], "s") || f[3] == memory {
		return "", false
	}
	path = strings.TrimLeft(f[5], " ")
	return path, path != "" && !strings.HasPrefix(path, "/dev/")
}

// memoryDevice returns the device number that maps shows for shared memory without a file.
func memoryDevice() (string, error) {
	fd, err := unix.MemfdCreate("demesne", unix.MFD_CLOEXEC)
	if err != nil {
		return "", os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return fmt.Sprintf("%02x:%02x", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))), err
}
