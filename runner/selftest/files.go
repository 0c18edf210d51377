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
		{"F4", "read a file of the user", func(f *facts) error { return secret(f, f.Canary) }},
		{"F4", "read it through /proc/self/root", func(f *facts) error { return secret(f, "/proc/self/root"+f.Canary) }},
		{"F4", "read it through /proc/1/root", func(f *facts) error { return secret(f, "/proc/1/root"+f.Canary) }},
		{"F4", "read it through the root of a process outside", func(f *facts) error { return secret(f, fmt.Sprintf("/proc/%d/root%s", f.PID, f.Canary)) }},
		{"F4", "read it by a hard link", func(f *facts) error {
			if err := os.Link(f.Canary, f.Dir+"/link"); err != nil {
				return err
			}
			defer os.Remove(f.Dir + "/link")
			return secret(f, f.Dir+"/link")
		}},
		{"F2", "change a file of the user", func(f *facts) error { return opens(f.Canary, os.O_WRONLY) }},
		{"F3", "make a file in a directory of the user", func(f *facts) error { return makes(f.Dir + "/made") }},
		{"F5", "make a git hook there", func(f *facts) error { return makes(f.Dir + "/.git/hooks/pre-commit") }},
		{"F6", "list a directory of the user", func(f *facts) error { _, err := os.ReadDir(f.Dir); return err }},
		{"F1", "connect to a unix socket by its path", func(f *facts) error { return connects(f, "unix", f.Path) }},
		{"P31", "see shared memory of the machine in /dev/shm", func(f *facts) error { return secret(f, f.Shared) }},
		{"F11", "find an inherited descriptor of a directory", inherited},
		{"F14", "see a process outside", func(f *facts) error { return outside(f, nil) }},
		{"F14", "see what it has open", func(f *facts) error {
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", f.PID))
			return outside(f, err)
		}},
		{"F14", "see where its memory is", func(f *facts) error { return outside(f, readsFile(fmt.Sprintf("/proc/%d/maps", f.PID))) }},
		{"F14", "read the secret in a process's environment", environments},
		{"F14", "read addresses of the kernel", func(*facts) error { return kernelAddresses() }},
		{"F15", "make a control group", func(*facts) error { return makesGroup() }},
		{"F16", "mount a tmpfs", func(f *facts) error { return mounts(f, "tmpfs", 0) }},
		{"F16", "mount a new proc", func(f *facts) error { return mounts(f, "proc", 0) }},
		{"F16", "bind the root directory", func(f *facts) error { return mounts(f, "", unix.MS_BIND) }},
		{"F16", "change the propagation of the root's mounts", func(*facts) error {
			// The kernel refuses two types at once, behind its check of rights.
			err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_PRIVATE, "")
			if errors.Is(err, unix.EINVAL) {
				return nil
			}
			return err
		}},
		{"F17", "make a device", func(*facts) error { return device() }},
	}
	for _, h := range hostFiles {
		all = append(all, probe{h.id, h.title, func(f *facts) error {
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
