package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// deviceNodes are bound from the host, as a user namespace does not allow mknod for devices. A device that the host
// lacks is missing inside.
var deviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}

var deviceLinks = []struct{ name, target string }{
	{"core", "/proc/kcore"},
	{"fd", "/proc/self/fd"},
	{"ptmx", "pts/ptmx"},
	{"stderr", "/proc/self/fd/2"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
}

// initName is the name in /dev of the sandbox's first program.
const initName = ".demesne-init"

// attrDevice makes a device bind nosuid, noexec and read-only. Read-only protects its owner and mode, while a
// device on a read-only mount can still be written to.
const attrDevice = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY

// mountDev makes the tmpfs for /dev with everything below it except shm, and attaches it.
func mountDev(at string, initProgram Source) (*plan, error) {
	p, err := newPlan("/dev/", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		option{"size", "64k"}, option{"nr_inodes", "64"})
	if err != nil {
		return nil, err
	}
	if err := p.devices(); err != nil {
		return p, err
	}
	pts, err := newDevpts()
	if err != nil {
		return p, err
	}
	if err := p.mount(planned{pts, "pts", unix.S_IFDIR, true}); err != nil {
		return p, err
	}
	if err := p.program(initProgram); err != nil {
		return p, err
	}
	return p, p.attach(unix.AT_FDCWD, at)
}

// devices makes the plain part of /dev. mqueue stays empty: only a process in the sandbox's own ipc namespace can
// mount the right one.
func (p *plan) devices() error {
	if err := p.learnUmask("mqueue"); err != nil {
		return err
	}
	if err := p.mkdir("shm", 0o755); err != nil {
		return err
	}
	for _, name := range deviceNodes {
		if err := p.bind("/dev/"+name, name, unix.S_IFREG, attrDevice); err != nil {
			return err
		}
	}
	for _, k := range deviceLinks {
		if err := p.symlink(k.target, k.name); err != nil {
			return err
		}
	}
	return nil
}

// shareShm makes /dev/shm a directory of the file system at /, so that it counts against the same size, and then
// makes /dev read-only. If the tree of an image has no directory to share, /dev/shm is a tmpfs of its own.
func (p *plan) shareShm(root *plan, l Layout) error {
	shm, err := root.openShm(l)
	if err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	defer unix.Close(shm)
	if err := move(shm, p.fd, "shm"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return p.seal()
}

func (p *plan) openShm(l Layout) (int, error) {
	if p.shm == nil {
		return newFS("tmpfs", attrBind, sizes(l)...)
	}
	return clone(p.shm.fd, p.shm.name, 0)
}

// newDevpts makes an instance of devpts. Its terminals belong to group 5 (tty) if that is mapped. It has at most
// 256 terminals, as the kernel's own limit is shared by the whole machine.
func newDevpts() (int, error) {
	options := []option{{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "256"}}
	const attrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	fd, err := newFS("devpts", attrs, append(options, option{"gid", "5"})...)
	if errors.Is(err, unix.EINVAL) { // 5 is not mapped
		return newFS("devpts", attrs, options...)
	}
	return fd, err
}

// program binds the sandbox's first program, the only executable file in /dev.
func (p *plan) program(s Source) error {
	if s.zero() {
		return nil
	}
	return p.source(s, initName, unix.S_IFREG, attrBindRO)
}
