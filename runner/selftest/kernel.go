package selftest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func processProbes() []probe {
	return []probe{
		{id: "P14", title: "find the secret in the own environment", try: func(f *facts) error {
			if !strings.Contains(os.Getenv(f.Variable), f.Secret) {
				return errors.New("the variable is not passed")
			}
			return nil
		}},
		{id: "P14", title: "find the agent of ssh", try: func(*facts) error {
			if os.Getenv("SSH_AUTH_SOCK") == "" {
				return errors.New("the variable is not passed")
			}
			return nil
		}},
		{id: "P31", title: "signal a process outside", try: func(f *facts) error { return outside(f, unix.Kill(f.PID, 0)) }},
		{id: "P31", title: "stop a process outside", try: func(f *facts) error {
			err := outside(f, unix.Kill(f.PID, unix.SIGSTOP))
			if err == nil {
				unix.Kill(f.PID, unix.SIGCONT)
			}
			return err
		}},
		{id: "P31", title: "open a pidfd of it", try: func(f *facts) error {
			fd, err := unix.PidfdOpen(f.PID, 0)
			if err == nil {
				unix.Close(fd)
			}
			return outside(f, err)
		}},
		{id: "P31", title: "trace it", try: func(f *facts) error { return outside(f, traces(f.PID)) }},
		{id: "P31", title: "read its memory", try: func(f *facts) error { return outside(f, opens(fmt.Sprintf("/proc/%d/mem", f.PID), os.O_RDONLY)) }},
		{id: "P31", title: "change its priority", try: func(f *facts) error { return outside(f, unix.Setpriority(unix.PRIO_PROCESS, f.PID, 1)) }},
		{id: "P31", title: "read its limits", try: func(f *facts) error { return outside(f, unix.Prlimit(f.PID, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{})) }},
	}
}

// initProbes are the probes of PID 1, keys and limits.
func initProbes() []probe {
	return []probe{
		{id: "P6", title: "read PID 1's memory", try: func(*facts) error { return opens("/proc/1/mem", os.O_RDONLY) }},
		{id: "P6", title: "read PID 1's memory by process_vm_readv", try: func(*facts) error {
			buffer := make([]byte, 1)
			_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &buffer[0], Len: 1}}, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
			if errors.Is(err, unix.EFAULT) { // the rights suffice, and only the address is wrong
				return nil
			}
			return err
		}},
		{id: "P6", title: "trace PID 1", try: func(*facts) error { return traces(1) }},
		{id: "P6", title: "take a descriptor of PID 1", try: func(*facts) error {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			got, err := unix.PidfdGetfd(fd, 0, 0)
			if err == nil {
				unix.Close(got)
			}
			return err
		}},
		{id: "P22", title: "change limits of PID 1", try: func(*facts) error {
			var l unix.Rlimit
			if err := unix.Prlimit(1, unix.RLIMIT_CORE, nil, &l); err != nil {
				return err
			}
			return unix.Prlimit(1, unix.RLIMIT_CORE, &l, nil)
		}},
		{id: "P7", title: "gain rights by a set-id program", try: func(*facts) error {
			if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && on == 1 {
				return errors.New("no_new_privs is set")
			}
			return nil
		}},
		{id: "P5", title: "read a key of the caller", try: func(f *facts) error {
			if f.Key == 0 {
				return absent("no key could be made outside")
			}
			buffer := make([]byte, 64)
			n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, f.Key, buffer, 0)
			if err == nil && !strings.Contains(string(buffer[:min(n, len(buffer))]), f.Secret) {
				return errors.New("another key")
			}
			return err
		}},
		{id: "P5", title: "add a key to the session keyring", try: func(*facts) error {
			_, err := unix.AddKey("user", "selftest", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
			return err
		}},
		{id: "P31", title: "attach shared memory of another process", try: func(f *facts) error {
			if f.Memory < 0 {
				return absent("no segment could be made outside")
			}
			_, err := unix.SysvShmAttach(f.Memory, 0, unix.SHM_RDONLY)
			return err
		}},
	}
}

// outside returns err, and an error where the process with that number is not the one outside. It compares start times, which
// every process may read: what protects a process's environment or memory may not protect it from signals.
func outside(f *facts, err error) error {
	if err != nil {
		return err
	}
	at, err := started(f.PID)
	if err == nil && at != f.Started {
		return errors.New("that is another process")
	}
	return err
}

// started returns the start time of a process, in ticks since boot.
func started(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("parse %q: %d fields", text, len(fields))
	}
	return fields[19], nil
}

// traces attaches to a process and detaches.
func traces(pid int) error {
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	return nil // the end of this process detaches
}

// call is a system call with arguments that the kernel refuses after its check of rights. Behind that check is code that
// sandboxes keep away.
type call struct {
	id, title string
	number    uintptr
	args      [5]uintptr
}

const bad = ^uintptr(0) // a wrong descriptor, or an address of nothing

// Arguments of calls. A call holds only their addresses.
var (
	root   = [2]byte{'/'}
	noTick = unix.Timex{Modes: adjTick} // the kernel refuses a tick of 0 behind its check of rights
)

const adjTick = 0x4000 // ADJ_TICK of linux/timex.h

func callProbes() (all []probe) {
	for _, c := range []call{
		{"P1", "io_uring_setup", unix.SYS_IO_URING_SETUP, [5]uintptr{1, bad}},
		{"P1", "io_uring_enter", unix.SYS_IO_URING_ENTER, [5]uintptr{bad}},
		{"P1", "io_uring_register", unix.SYS_IO_URING_REGISTER, [5]uintptr{bad, 0, 0, 0}},
		{"P3", "make a user namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER}},
		{"P3", "make a user and a network namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNET}},
		{"P3", "make a user and a mount namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}},
		{"P3", "make a mount namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWNS}},
		{"P3", "make a network namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWNET}},
		{"P3", "make an IPC namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWIPC}},
		{"P3", "make a control group namespace", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWCGROUP}},
		{"P13", "bpf", unix.SYS_BPF, [5]uintptr{bad & 0xffff, 0, 0}},
		{"P13", "perf_event_open", unix.SYS_PERF_EVENT_OPEN, [5]uintptr{bad, 0, 0, 0, 0}},
		{"P13", "userfaultfd", unix.SYS_USERFAULTFD, [5]uintptr{1}},
		{"P13", "kexec_load", unix.SYS_KEXEC_LOAD, [5]uintptr{0, 1 << 20, 0, 0xffff}},
		{"P13", "open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{bad, bad, 0}},
		{"P13", "init_module", unix.SYS_INIT_MODULE, [5]uintptr{bad, 0, bad}},
		{"P13", "finit_module", unix.SYS_FINIT_MODULE, [5]uintptr{bad, bad, 0}},
		{"P13", "delete_module", unix.SYS_DELETE_MODULE, [5]uintptr{bad, 0}},
		{"P13", "fsopen", unix.SYS_FSOPEN, [5]uintptr{bad, 0}},
		{"P13", "open_tree", unix.SYS_OPEN_TREE, [5]uintptr{bad, bad, 1}},
		{"P13", "move_mount", unix.SYS_MOVE_MOUNT, [5]uintptr{bad, bad, bad, bad, 0}},
		{"P13", "mount_setattr", unix.SYS_MOUNT_SETATTR, [5]uintptr{bad, bad, 0, bad, 32}},
		{"P13", "pivot_root", unix.SYS_PIVOT_ROOT, [5]uintptr{bad, bad}},
		{"P13", "chroot", unix.SYS_CHROOT, [5]uintptr{uintptr(unsafe.Pointer(&root))}},
		{"P13", "setns", unix.SYS_SETNS, [5]uintptr{bad, 0}},
		{"P13", "swapon", unix.SYS_SWAPON, [5]uintptr{bad, 0}},
		{"P13", "acct", unix.SYS_ACCT, [5]uintptr{bad}},
		{"P13", "reboot", unix.SYS_REBOOT, [5]uintptr{0, 0, 0}},
		{"P13", "read the kernel's log by syslog", unix.SYS_SYSLOG, [5]uintptr{3, bad, bad & 0xff}},
		{"P13", "set the clock", unix.SYS_ADJTIMEX, [5]uintptr{uintptr(unsafe.Pointer(&noTick))}},
		{"P13", "set the host's name", unix.SYS_SETHOSTNAME, [5]uintptr{bad, 1}},
		{"P13", "fanotify_init", unix.SYS_FANOTIFY_INIT, [5]uintptr{0x100000, 0}},
		{"P13", "quotactl", unix.SYS_QUOTACTL, [5]uintptr{0x80000100, bad, 0, 0}},
		{"P13", "kcmp with PID 1", unix.SYS_KCMP, [5]uintptr{1, 1, 1}},
	} {
		all = append(all, probe{id: c.id, title: c.title, try: func(*facts) error {
			_, _, errno := unix.Syscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
			return errnoError(errno)
		}})
	}
	return all
}

// errnoError returns nil where the kernel passed its check of rights.
func errnoError(errno unix.Errno) error {
	switch errno {
	case unix.EPERM, unix.EACCES, unix.ENOSYS, unix.ESRCH:
		return errno
	}
	return nil
}
