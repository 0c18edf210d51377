package proxyserver

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"demesne/runner/seccomp"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// readable is what resolving names (hosts, resolv.conf, nsswitch.conf, which may be links
// to what writes them) and verifying certificates take. What is not there is left out.
var readable = []string{
	"/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/pki", "/usr/lib/ssl", "/usr/share/zoneinfo",
}

// linked are files of /etc that are links to elsewhere on some systems (NixOS): the
// directories they lead to are readable too.
var linked = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
	"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-bundle.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
}

// Confine takes from the process, for ever, every capability, new privileges, all system calls but
// those that [seccomp.Server] names, all files but the readable ones, listening on TCP ports (not MPTCP's, which Landlock knows nothing of), and signals and abstract sockets of others. Its
// memory is closed to all in its user namespace, though not to who owns that: the caller on the host, user_namespaces(7). What of Landlock this kernel does not know
// is not held: what could be done without it is done by the user namespace, where the
// process has no rights that the caller has not. Descriptors that are open stay so.
func Confine() error {
	os.WriteFile("/proc/self/comm", []byte("demesne-proxy"), 0) // it was executed by a number
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	// On every thread, which is what libcap's psx is for.
	if _, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("confine: no new privileges: %w", e)
	}
	if err := dropCaps(); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := restrict(); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return filter()
}

// filter leaves the system calls that serving takes; psx cannot be used after it, as nothing is left
// that would have to be done on every thread.
func filter() error {
	prog, err := seccomp.Server(os.Getpid())
	if err == nil {
		err = seccomp.Load(prog)
	}
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}

func dropCaps() error {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	none := &[2]unix.CapUserData{}
	_, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(none)), 0)
	if e != 0 {
		return fmt.Errorf("drop capabilities: %w", e)
	}
	return nil
}

// restrict applies Landlock to every thread, as far as this kernel knows it.
func restrict() error {
	c := landlock.V11
	c.HandledAccessNet = ll.AccessNetBindTCP // where to connect is what the policies are about
	var rules []landlock.Rule
	for _, path := range paths() {
		rules = append(rules, landlock.PathAccess(ll.AccessFSReadFile|ll.AccessFSReadDir, path).IgnoreIfMissing())
	}
	return c.BestEffort().Restrict(rules...)
}

func paths() []string {
	all := readable[:len(readable):len(readable)]
	for _, path := range linked {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			all = append(all, filepath.Dir(real))
		}
	}
	return all
}
