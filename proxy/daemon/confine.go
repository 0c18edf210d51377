package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"demesne/runner/seccomp"
)

// readable lists the paths for resolving names (hosts, resolv.conf, nsswitch.conf, which may link to generated files)
// and for verifying certificates. Missing paths are skipped.
var readable = []string{
	"/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/pki", "/usr/lib/ssl", "/usr/share/zoneinfo",
}

// linked lists files of /etc that are links to other directories on some systems (NixOS). Those directories become
// readable too.
var linked = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
	"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-bundle.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
}

// confine irrevocably restricts the process. It drops all capabilities and forbids new privileges. Only the system
// calls in [seccomp.Server] remain, and only the readable files. Landlock forbids listening on TCP ports (it does not
// cover MPTCP), signals to other processes, and abstract sockets of others.
//
// Other processes in the user namespace cannot read its memory. The namespace's owner, the caller on the host, still
// can (user_namespaces(7)). Parts of Landlock that this kernel lacks are not enforced. The user namespace then limits
// the process: it has no rights there that the caller lacks. Open descriptors remain open.
func confine() error {
	os.WriteFile("/proc/self/comm", []byte("demesne-proxy"), 0) // it was executed through /proc/self/fd
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	// psx makes the call on every thread.
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

// filter allows only the system calls that serving needs. psx cannot be used afterwards, so calls that every thread
// must make come first.
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

// restrict applies Landlock to every thread, as far as this kernel supports it.
func restrict() error {
	c := landlock.V11
	c.HandledAccessNet = ll.AccessNetBindTCP // the policies control where to connect
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
