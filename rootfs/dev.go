package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deviceNodes are bound from the host, for nobody can make one in a user namespace. One that the
// host lacks is missing inside.
var deviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}

var deviceLinks = []struct{ name, target string }{
	{"core", "/proc/kcore"},
	{"fd", "/proc/self/fd"},
	{"ptmx", "pts/ptmx"},
	{"stderr", "/proc/self/fd/2"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
}

// initName is where the sandbox's first program is found in /dev.
const initName = ".demesne-init"

// A device bind is nosuid and noexec, and read-only: that keeps its owner and mode, while a device
// on a read-only mount can still be written to.
const attrDevice = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY

// planDev makes the tmpfs for /dev and plans everything below it. It takes over shm, also on an
// error. /dev/mqueue is an empty directory: only a process in the sandbox's own ipc namespace can
// mount the right one.
func planDev(initProgram Source, shm int) (*plan, error) {
	p, err := newPlan("/dev/", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		option{"size", "64k"}, option{"nr_inodes", "64"})
	if err != nil {
		unix.Close(shm)
		return nil, err
	}
	if err := p.mount(shm, "shm", true); err != nil {
		return p, err
	}
	for _, name := range deviceNodes {
		if err := p.bind("/dev/"+name, name, attrDevice); err != nil {
			return p, err
		}
	}
	for _, k := range deviceLinks {
		if err := p.symlink(k.target, k.name); err != nil {
			return p, err
		}
	}
	if err := p.mkdir("mqueue", 0o755); err != nil {
		return p, err
	}
	pts, err := newDevpts()
	if err != nil {
		return p, err
	}
	if err := p.mount(pts, "pts", true); err != nil {
		return p, err
	}
	return p, p.program(initProgram)
}

// newDevpts makes an instance of devpts. Its terminals belong to group 5 (tty) where that is
// mapped, and at most 256 can be had: the kernel's own limit is one for the whole machine.
func newDevpts() (int, error) {
	options := []option{{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "256"}}
	const attrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	fd, err := newFS("devpts", attrs, append(options, option{"gid", "5"})...)
	if errors.Is(err, unix.EINVAL) { // 5 is not mapped
		return newFS("devpts", attrs, options...)
	}
	return fd, err
}

// program binds the sandbox's first program, the only thing in /dev that can be executed.
func (p *plan) program(s Source) error {
	if s.zero() {
		return nil
	}
	fd, kind, err := s.open(attrBindRO)
	if err != nil {
		return fmt.Errorf("bind init: %w", err)
	}
	if err := p.mount(fd, initName, s.Mount == nil); err != nil {
		return err
	}
	if kind != unix.S_IFREG {
		return fmt.Errorf("bind init: source %q: not a regular file", s.name())
	}
	return nil
}
