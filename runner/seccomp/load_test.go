package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// A filter cannot be removed. Tests that load one run in their own process, a second execution of this test
// binary.
const loadEnv = "SECCOMP_TEST_LOAD"

func TestMain(m *testing.M) {
	if o := os.Getenv(loadEnv); o != "" {
		os.Exit(tryCalls(o))
	}
	os.Exit(m.Run())
}

// try is a system call with real arguments, made under a filter.
type try struct {
	name string
	do   func() unix.Errno
	want unix.Errno
}

func raw(nr uintptr, args ...uintptr) func() unix.Errno {
	var a [6]uintptr
	copy(a[:], args)
	return func() unix.Errno {
		_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return e
	}
}

func toErrno(err error) unix.Errno {
	var e unix.Errno
	errors.As(err, &e)
	return e
}

const highBit = uintptr(1) << 32

// tries returns calls for the options. Without a filter, each has another result, for root or for any user.
func tries(o pid1api.SeccompOptions) []try {
	// An allowed call fails because of its pointers or its descriptor.
	list := []try{
		{"keyctl", raw(unix.SYS_KEYCTL, 0x7fff), unix.ENOSYS},
		{"add_key", raw(unix.SYS_ADD_KEY), unix.ENOSYS},
		{"bpf", raw(unix.SYS_BPF), unix.EPERM},
		{"io_uring_setup", raw(unix.SYS_IO_URING_SETUP, 1), unix.ENOSYS},
		{"open_by_handle_at", raw(unix.SYS_OPEN_BY_HANDLE_AT), unix.EPERM},
		{"TIOCSTI", raw(unix.SYS_IOCTL, ^uintptr(0), unix.TIOCSTI), unix.EPERM},
		{"TIOCSTI high", raw(unix.SYS_IOCTL, ^uintptr(0), unix.TIOCSTI|highBit), unix.EPERM},
		{"TCGETS", raw(unix.SYS_IOCTL, ^uintptr(0), unix.TCGETS), unix.EBADF},
		{"AF_ALG", raw(unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET), unix.EAFNOSUPPORT},
		{"raw socket", raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP), choose(o.NoSocket, unix.EAFNOSUPPORT, unix.EPERM)},
		{"udp", raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM), choose(o.NoSocket, unix.EAFNOSUPPORT, 0)},
		{"unix", raw(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM), choose(o.NoSocket, unix.EAFNOSUPPORT, 0)},
		{"netlink generic", raw(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_GENERIC), unix.EAFNOSUPPORT},
		{"personality", raw(unix.SYS_PERSONALITY, 0x400000), unix.EPERM},
		{"unshare", raw(unix.SYS_UNSHARE, unix.CLONE_NEWUTS|unix.CLONE_NEWUSER), choose(o.Nesting, unix.EINVAL, unix.EPERM)},
		{"clone3", raw(unix.SYS_CLONE3), choose(o.Nesting, unix.EINVAL, unix.ENOSYS)},
		{"fsconfig", raw(unix.SYS_FSCONFIG, ^uintptr(0), 0xff), choose(o.Nesting, unix.EINVAL, unix.EPERM)},
		{"clone newuser", clone(unix.CLONE_NEWUSER), choose(o.Nesting, 0, unix.EPERM)},
		{"fork", clone(0), 0},
	}
	if o.NoSUID {
		list = append(list,
			try{"create setuid", func() unix.Errno { return create(0o4755) }, unix.EPERM},
			try{"create", func() unix.Errno { return create(0o755) }, 0},
			try{"fchmod setgid", raw(unix.SYS_FCHMOD, ^uintptr(0), 0o2755), unix.EPERM},
			try{"fchmod", raw(unix.SYS_FCHMOD, ^uintptr(0), 0o755), unix.EBADF})
	}
	if o.FakeRoot {
		list = append(list,
			try{"chown", func() unix.Errno { return toErrno(os.Chown("/", 12, 34)) }, 0},
			try{"mknod", func() unix.Errno { return toErrno(unix.Mknod("/not/there", unix.S_IFBLK, 0)) }, 0},
			try{"setgroups", raw(unix.SYS_SETGROUPS, 1<<20), 0})
	}
	return list
}

func choose(yes bool, a, b unix.Errno) unix.Errno {
	if yes {
		return a
	}
	return b
}

// clone starts and reaps a process with flags.
func clone(flags uintptr) func() unix.Errno {
	return func() unix.Errno {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
		if err == nil {
			_, err = syscall.Wait4(pid, nil, 0, nil)
		}
		return toErrno(err)
	}
}

func create(mode uint32) unix.Errno {
	path := filepath.Join(os.TempDir(), fmt.Sprintf(".seccomp-test-%d", os.Getpid()))
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	if err == nil {
		unix.Close(fd)
		os.Remove(path)
	}
	return toErrno(err)
}

// tryCalls loads the filter and makes the calls on a thread that existed before.
func tryCalls(options string) int {
	var o pid1api.SeccompOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		fmt.Println(err)
		return 1
	}
	other := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range other {
			f()
		}
	}()
	other <- func() {}
	prog, err := Filter(o)
	runtime.LockOSThread() // no_new_privs is this thread's
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		err = Load(prog)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, t := range tries(o) {
		done := make(chan unix.Errno)
		other <- func() { done <- t.do() }
		if got := <-done; got != t.want {
			fmt.Printf("%s: %d (%v), want %d (%v)\n", t.name, int(got), got, int(t.want), t.want)
		}
	}
	return 0
}

func TestLoad(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "test")
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(exe); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	for _, o := range []pid1api.SeccompOptions{{}, {Nesting: true}, {NoSUID: true}, {NoSocket: true}, {FakeRoot: true, NoSUID: true}} {
		for _, user := range []string{"self", "nobody"} {
			if user == "nobody" && os.Getuid() != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%+v as %s", o, user), func(t *testing.T) {
				options, _ := json.Marshal(o)
				c := exec.Command(exe)
				c.Env = append(os.Environ(), loadEnv+"="+string(options))
				if user == "nobody" {
					c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				}
				out, err := c.CombinedOutput()
				if err != nil || strings.TrimSpace(string(out)) != "" {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
