package daemon

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"demesne/proxy"
)

// TestConfine confines a separate process and tests what it may still do.
func TestConfine(t *testing.T) {
	dir := os.Getenv("DEMESNE_TEST_CONFINE")
	if dir == "" {
		dir = t.TempDir()
		os.WriteFile(dir+"/f", nil, 0o644)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfine$", "-test.v")
		cmd.Env = append(os.Environ(), "DEMESNE_TEST_CONFINE="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := confine(); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err == nil {
		t.Errorf("/proc can be read: %s", status)
	}
	if err := unix.Mount("x", "/mnt", "tmpfs", 0, ""); !errors.Is(err, unix.EPERM) {
		t.Errorf("mount: %v", err)
	}
	abi, _ := ll.LandlockGetABIVersion()
	for name, do := range map[string]func() error{
		"read a file":  func() error { _, err := os.ReadFile(dir + "/f"); return err },
		"write a file": func() error { return os.WriteFile(dir+"/g", nil, 0o644) },
		"write /etc":   func() error { return os.WriteFile("/etc/demesne-test", nil, 0o644) },
		"execute":      func() error { return exec.Command("/bin/true").Run() },
		"listen": func() error {
			plain := net.ListenConfig{}
			plain.SetMultipathTCP(false)
			l, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
			if err == nil {
				l.Close()
			}
			if abi < 4 {
				return unix.EACCES // this kernel has no Landlock rule for it
			}
			return err
		},
	} {
		if err := do(); !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range refusedCalls {
		if _, _, e := unix.RawSyscall6(call[0], call[1], call[2], call[3], call[4], 0, 0); e != unix.EPERM {
			t.Errorf("%s: %v", name, e)
		}
	}
	if b, err := os.ReadFile("/etc/resolv.conf"); err != nil {
		t.Errorf("%q: %v", b, err)
	}
	if _, err := os.ReadFile("/etc/hosts"); err != nil {
		t.Error(err)
	}
	if descriptors() == 0 {
		t.Error("how many descriptors there may be is not known")
	}
	for _, at := range []string{"127.0.0.1:1", "[::1]:1"} {
		if own, err := proxy.OwnAddress(netip.MustParseAddrPort(at)); err != nil || !own {
			t.Errorf("%s is this machine's: %v, %v", at, own, err)
		}
	}
	if _, err := x509.SystemCertPool(); err != nil {
		t.Error(err)
	}
}

// refusedCalls have arguments for which an unconfined process succeeds or gets an error other than EPERM.
var refusedCalls = map[string][5]uintptr{
	"execve":            {unix.SYS_EXECVE},
	"execveat":          {unix.SYS_EXECVEAT},
	"fork":              {unix.SYS_CLONE, uintptr(unix.SIGCHLD)},
	"clone3":            {unix.SYS_CLONE3},
	"a user namespace":  {unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
	"setns":             {unix.SYS_SETNS, ^uintptr(0)},
	"ptrace":            {unix.SYS_PTRACE, unix.PTRACE_TRACEME},
	"process_vm_readv":  {unix.SYS_PROCESS_VM_READV, 1},
	"pidfd_open":        {unix.SYS_PIDFD_OPEN, 1},
	"kill":              {unix.SYS_KILL, 1},
	"tgkill of another": {unix.SYS_TGKILL, 1, 1},
	"bpf":               {unix.SYS_BPF, 100},
	"keyctl":            {unix.SYS_KEYCTL, 0x7fff},
	"io_uring_setup":    {unix.SYS_IO_URING_SETUP},
	"userfaultfd":       {unix.SYS_USERFAULTFD, 1 << 20},
	"perf_event_open":   {unix.SYS_PERF_EVENT_OPEN},
	"memfd_create":      {unix.SYS_MEMFD_CREATE},
	"ioctl":             {unix.SYS_IOCTL, 0, unix.TIOCSTI},
	"memory to execute": {unix.SYS_MMAP, 0, 4096, unix.PROT_READ | unix.PROT_EXEC, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS},
	"mprotect":          {unix.SYS_MPROTECT, 0, 0, unix.PROT_EXEC},
	"prctl":             {unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1},
	"a unix socket":     {unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM},
	"a vsock":           {unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM},
	"an audit socket":   {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
	"a raw socket":      {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
}

// TestPaths: links that lead out of /etc can be followed.
func TestPaths(t *testing.T) {
	for _, p := range paths() {
		if !strings.HasPrefix(p, "/") || p == "/" {
			t.Errorf("%q is to be readable", p)
		}
	}
}
