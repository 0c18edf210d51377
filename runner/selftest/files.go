package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hostFiles are files of a machine which no sandbox should open. A probe succeeds if it can open or read one of them.
var hostFiles = []struct {
	id, title string
	flags     int
	reads     bool // opening is not enough: the file must have a first byte
	patterns  []string
}{
	{"F4", "read the hashes of passwords", unix.O_RDONLY, true, []string{"/etc/shadow"}},
	{"F4", "read the machine's id", unix.O_RDONLY, true, []string{"/etc/machine-id"}},
	{"F4", "read a host key of ssh", unix.O_RDONLY, true, []string{"/etc/ssh/ssh_host_*_key"}},
	{"F4", "read the machine's logs", unix.O_RDONLY, true, []string{"/var/log/*.log", "/var/log/journal/*/*"}},
	{"F12", "open PID 1's program for writing", unix.O_WRONLY, false, []string{"/proc/1/exe"}},
	{"F14", "read the kernel's memory", unix.O_RDONLY, true, []string{"/proc/kcore"}},
	{"F14", "read the kernel's log", unix.O_RDONLY, false, []string{"/proc/kmsg"}},
	{"F14", "open sysrq-trigger for writing", unix.O_WRONLY, false, []string{"/proc/sysrq-trigger"}},
	{"F14", "read timers of the machine", unix.O_RDONLY, true, []string{"/proc/timer_list"}},
	{"F14", "read the kernel's page flags", unix.O_RDONLY, true, []string{"/proc/kpageflags"}},
	{"F15", "open core_pattern for writing", unix.O_WRONLY, false, []string{"/proc/sys/kernel/core_pattern"}},
	{"F15", "open modprobe's path for writing", unix.O_WRONLY, false, []string{"/proc/sys/kernel/modprobe"}},
	{"F15", "open a setting of memory for writing", unix.O_WRONLY, false, []string{"/proc/sys/vm/overcommit_memory"}},
	{"F15", "open a setting of the kernel for writing", unix.O_WRONLY, false, []string{"/proc/sys/kernel/panic"}},
	{"F15", "open /sys for writing", unix.O_WRONLY, false, []string{"/sys/kernel/uevent_helper", "/sys/kernel/profiling", "/sys/kernel/mm/transparent_hugepage/enabled"}},
	{"F15", "read the firmware's tables", unix.O_RDONLY, true, []string{"/sys/firmware/acpi/tables/*", "/sys/firmware/dmi/tables/*", "/sys/firmware/fdt"}},
	{"F43", "read the memory map of the firmware", unix.O_RDONLY, true, []string{"/sys/firmware/memmap/*/start"}},
	{"P13", "open a disk or the memory", unix.O_RDONLY, false, []string{"/dev/mem", "/dev/sd[a-z]", "/dev/vd[a-z]", "/dev/nvme*", "/dev/dm-*", "/dev/loop-control", "/dev/loop[0-9]"}},
	{"P13", "open /dev/kmsg", unix.O_RDONLY, false, []string{"/dev/kmsg"}},
	{"P13", "open /dev/fuse, kvm or net/tun", unix.O_RDONLY, false, []string{"/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net"}},
}

// missing lists the titles of probes for which this machine has no file.
func missing() (titles []string) {
	for _, h := range hostFiles {
		if len(matches(h.patterns)) == 0 {
			titles = append(titles, h.title)
		}
	}
	return titles
}

func matches(patterns []string) (found []string) {
	for _, p := range patterns {
		names, _ := filepath.Glob(p)
		found = append(found, names...)
	}
	return found
}

func fileProbes() []probe {
	all := []probe{
		{id: "F4", title: "read a file of the user", try: func(f *facts) error { return secret(f, f.Canary) }},
		{id: "F4", title: "read it through /proc/self/root", try: func(f *facts) error { return secret(f, "/proc/self/root"+f.Canary) }},
		{id: "F4", title: "read it through /proc/1/root", try: func(f *facts) error { return secret(f, "/proc/1/root"+f.Canary) }},
		{id: "F4", title: "read it through the root of a process outside", try: func(f *facts) error { return secret(f, fmt.Sprintf("/proc/%d/root%s", f.PID, f.Canary)) }},
		{id: "F4", title: "read it by a hard link", try: func(f *facts) error {
			if err := os.Link(f.Canary, f.Dir+"/link"); err != nil {
				return err
			}
			defer os.Remove(f.Dir + "/link")
			return secret(f, f.Dir+"/link")
		}},
		{id: "F2", title: "change a file of the user", try: func(f *facts) error { return opens(f.Canary, os.O_WRONLY) }},
		{id: "F3", title: "make a file in a directory of the user", try: func(f *facts) error { return makes(f.Dir + "/made") }},
		{id: "F5", title: "make a git hook there", try: func(f *facts) error { return makes(f.Dir + "/.git/hooks/pre-commit") }},
		{id: "F6", title: "list a directory of the user", try: func(f *facts) error { _, err := os.ReadDir(f.Dir); return err }},
		{id: "F1", title: "connect to a unix socket by its path", try: func(f *facts) error { return connects(f, "unix", f.Path) }},
		{id: "P31", title: "see shared memory of the machine in /dev/shm", try: func(f *facts) error { return secret(f, f.Shared) }},
		{id: "F11", title: "find an inherited descriptor of a directory", try: inherited},
		{id: "F14", title: "see a process outside", try: func(f *facts) error { return outside(f, nil) }},
		{id: "F14", title: "see what it has open", try: func(f *facts) error {
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", f.PID))
			return outside(f, err)
		}},
		{id: "F14", title: "see where its memory is", try: func(f *facts) error { return outside(f, readsFile(fmt.Sprintf("/proc/%d/maps", f.PID))) }},
		{id: "F14", title: "read the secret in a process's environment", try: environments},
		{id: "F14", title: "read addresses of the kernel", try: func(*facts) error { return kernelAddresses() }},
		{id: "F15", title: "make a control group", try: func(*facts) error { return makesGroup() }},
		{id: "F16", title: "mount a tmpfs", try: func(f *facts) error { return mounts(f, "tmpfs", 0) }},
		{id: "F16", title: "mount a new proc", try: func(f *facts) error { return mounts(f, "proc", 0) }},
		{id: "F16", title: "bind the root directory", try: func(f *facts) error { return mounts(f, "", unix.MS_BIND) }},
		{id: "F16", title: "change the propagation of the root's mounts", try: func(*facts) error {
			// The kernel refuses two types at once, behind its check of rights.
			err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_PRIVATE, "")
			if errors.Is(err, unix.EINVAL) {
				return nil
			}
			return err
		}},
		{id: "F17", title: "make a device", try: func(*facts) error { return device() }},
	}
	for _, h := range hostFiles {
		all = append(all, probe{id: h.id, title: h.title, try: func(f *facts) error {
			if slices.Contains(f.Missing, h.title) {
				return absent("this machine has no such file")
			}
			err := errors.New("no such file")
			for _, name := range matches(h.patterns) {
				if err = opens(name, h.flags); err == nil && h.reads {
					err = readsFile(name)
				}
				if err == nil {
					return nil
				}
			}
			return err
		}})
	}
	return all
}

// secret returns nil if path has the secret.
func secret(f *facts, path string) error {
	text, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(text, []byte(f.Secret)) {
		return errors.New("the file there is another one")
	}
	return err
}

func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// readsFile returns nil if path has a first byte.
func readsFile(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 64))
	if err == nil && n == 0 {
		return errors.New("the file is empty")
	}
	return err
}

// makes returns nil if the file can be made. It stays, and is the proof outside.
func makes(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func inherited(f *facts) error {
	for fd := 3; fd < 64; fd++ {
		if target, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); err == nil && strings.HasPrefix(target, "/") {
			if got, err := unix.Openat(fd, filepath.Base(f.Canary), unix.O_RDONLY, 0); err == nil {
				return unix.Close(got)
			}
		}
	}
	return errors.New("no descriptor leads there")
}

func environments(f *facts) error {
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range found {
		if secret(f, name) == nil {
			return nil
		}
	}
	return fmt.Errorf("in none of %d processes", len(found))
}

func kernelAddresses() error {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return err
	}
	if len(text) < 16 || strings.Trim(string(text[:16]), "0") == "" {
		return errors.New("all are zero")
	}
	return nil
}

func makesGroup() error {
	err := errors.New("no control group is mounted")
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"} {
		if _, stat := os.Stat(root + "/cgroup.procs"); stat != nil {
			continue
		}
		if err = os.Mkdir(root+"/demesne-selftest", 0o755); err == nil {
			return os.Remove(root + "/demesne-selftest")
		}
	}
	return err
}

func mounts(_ *facts, kind string, flags uintptr) error {
	dir, err := os.MkdirTemp("", "selftest")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	source := kind
	if kind == "" {
		source = "/"
	}
	if err := unix.Mount(source, dir, kind, flags, ""); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

func device() error {
	dir, err := os.MkdirTemp("", "selftest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		return err
	}
	return opens(dir+"/null", os.O_RDWR)
}
