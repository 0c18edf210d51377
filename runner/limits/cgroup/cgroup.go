// Package cgroup reads and writes control groups through directory descriptors.
//
// All operations are relative to a [Dir] opened early, because demesne-runner later mounts its own cgroup2 over
// /sys/fs/cgroup. Both versions work alike in this package. A directory is a group, mkdir creates it, and rmdir
// removes it. Writing a process id to cgroup.procs moves that process.
//
// The second half of the package is for real root, outside any user namespace. [Prepare] makes the directories
// for a runner with an ordinary user's id, [Enter] moves that runner in, and [Reap] removes what it left. The
// package imports nothing of demesne, so the program that starts a runner stays small.
//
// The package does not choose limits (package limits does) and does not change groups that it did not make.
//
// It is apart from package limits because demesne links it (package client), and must not link what talks to systemd.
package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is an open control group directory.
type Dir struct {
	f    *os.File
	name string // for errors
}

// Open opens the group at path, which must not end in a symbolic link.
func Open(path string) (*Dir, error) {
	return openAt(unix.AT_FDCWD, path, path)
}

func openAt(fd int, name, label string) (*Dir, error) {
	n, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %q: %w", label, err)
	}
	return &Dir{f: os.NewFile(uintptr(n), label), name: label}, nil
}

// Sub opens the group at a relative path below d; "." or "" opens d again.
func (d *Dir) Sub(path string) (*Dir, error) {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		path = "."
	}
	return openAt(int(d.f.Fd()), path, filepath.Join(d.name, path))
}

// Make makes the group called name in d, or opens an existing one.
func (d *Dir) Make(name string) (*Dir, error) {
	err := unix.Mkdirat(int(d.f.Fd()), name, 0o755)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make cgroup %q: %w", filepath.Join(d.name, name), err)
	}
	return d.Sub(name)
}

// Write writes value to a file of the group in a single write(2), as the kernel requires. It retries on EINTR:
// version 1's memory limits fail that way while a signal is pending (mem_cgroup_resize_max). The Go runtime
// signals its own threads at any time.
func (d *Dir) Write(file, value string) error {
	fd, err := unix.Openat(int(d.f.Fd()), file, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Write(fd, []byte(value))
	}
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", value, file, err)
	}
	return nil
}

// Read returns the content of a file of the group, without surrounding white space.
func (d *Dir) Read(file string) (string, error) {
	f, err := d.OpenFile(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// OpenFile opens a file of the group for reading.
func (d *Dir) OpenFile(file string) (*os.File, error) {
	fd, err := unix.Openat(int(d.f.Fd()), file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	return os.NewFile(uintptr(fd), file), nil
}

// Key returns the number for key in a flat keyed file (memory.events, memory.oom_control), or 0 if it is
// missing.
func (d *Dir) Key(file, key string) int64 {
	text, err := d.Read(file)
	if err != nil {
		return 0
	}
	return keyed(text, key)
}

// keyed works as [Dir.Key], on text already read.
func keyed(text, key string) int64 {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}

// Join moves the process into the group.
func (d *Dir) Join(pid int) error { return d.Write("cgroup.procs", strconv.Itoa(pid)) }

// Procs lists the processes in the group itself, not below it. A process of a foreign pid namespace appears as
// 0.
func (d *Dir) Procs() ([]int, error) {
	text, err := d.Read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("read cgroup.procs: %q is not a process id", f)
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// Owned reports whether the group belongs to the caller's effective user, which is the meaning of delegation.
func (d *Dir) Owned() bool {
	var st unix.Stat_t
	return unix.Fstat(int(d.f.Fd()), &st) == nil && int(st.Uid) == os.Geteuid()
}

// Children lists the names of the groups in d.
func (d *Dir) Children() ([]string, error) {
	again, err := d.Sub(".") // a directory descriptor has a single read position
	if err != nil {
		return nil, err
	}
	defer again.Close()
	entries, err := again.f.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list cgroup %q: %w", d.name, err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Kill kills every process in the group and below where the kernel has cgroup.kill (version 2, Linux 5.14).
func (d *Dir) Kill() error { return d.Write("cgroup.kill", "1") }

// removeFor is how long Remove waits for killed processes to exit.
const removeFor = 2 * time.Second

// Remove removes the group called name in d and everything below it, and kills the processes. It ignores a
// missing group.
func (d *Dir) Remove(name string) error {
	for deadline := time.Now().Add(removeFor); ; time.Sleep(2 * time.Millisecond) {
		err := d.remove(name)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %q: %w", filepath.Join(d.name, name), err)
		}
	}
}

func (d *Dir) remove(name string) error {
	// The common case is an empty group, which takes one system call.
	err := unix.Unlinkat(int(d.f.Fd()), name, unix.AT_REMOVEDIR)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	sub, err := d.Sub(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.Kill() != nil {
		sub.killEach()
	}
	names, err := sub.Children()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := sub.remove(n); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return unix.Unlinkat(int(d.f.Fd()), name, unix.AT_REMOVEDIR)
}

// killEach kills the listed processes one by one, for version 1. A process id may be reused between the read
// and the kill. So killEach first opens a pidfd for each process and then confirms that the list still contains it.
func (d *Dir) killEach() {
	held := map[int]int{}
	pids, _ := d.Procs()
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); pid > 0 && err == nil {
			defer unix.Close(fd)
			held[pid] = fd
		}
	}
	pids, _ = d.Procs()
	for _, pid := range pids {
		if fd, ok := held[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // an error means the process is gone
		}
	}
}

// Chown changes the owner of the group and of the named files in it to uid.
func (d *Dir) Chown(uid int, files ...string) error {
	for _, f := range append([]string{"."}, files...) {
		err := unix.Fchownat(int(d.f.Fd()), f, uid, uid, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && !(f != "." && errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("chown %q to %d: %w", filepath.Join(d.name, f), uid, err)
		}
	}
	return nil
}

// Close closes the descriptor; the group remains.
func (d *Dir) Close() error { return d.f.Close() }
