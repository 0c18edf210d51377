package pid1

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// A prober tests operations before and after a restriction. Only a changed result shows that this restriction,
// and nothing else, is in effect.
type prober struct {
	node     string // a path where mknod of a device reaches the capability check
	outside  string // without node: a directory that can be listed, and that no rule covers
	abstract int    // a socket with an abstract name, made outside any domain; -1: no socket
	name     unix.Sockaddr
	signal   bool // the parent, outside any domain, can be signalled
}

// probe runs every test once, unrestricted.
func probe(s pid1api.Setup) *prober {
	p := &prober{abstract: -1, node: nodePlace(s.Landlock), signal: signalParent() == nil}
	if p.node == "" {
		p.outside = outsidePlace(s.Landlock)
	}
	if s.Scoped && scopes() {
		p.listen()
	}
	return p
}

func (p *prober) close() {
	if p.abstract >= 0 {
		unix.Close(p.abstract)
	}
}

// nodePlace returns a path below a read-write rule where mknod succeeds or fails only for lack of CAP_MKNOD.
func nodePlace(rules []pid1api.PathRule) string {
	for _, r := range rules {
		path := filepath.Join(string(r.Path), ".demesne-"+strconv.Itoa(os.Getpid()))
		if r.Access == pid1api.AccessReadExec {
			continue
		}
		if err := mknod(path); err == nil || is(err, unix.EPERM) {
			return path
		}
	}
	return ""
}

// outsidePlace returns the parent directory of a rule's path, if no rule covers it and it can be listed. In a sandbox of
// demesne, mknod of a device is refused already.
func outsidePlace(rules []pid1api.PathRule) string {
	for _, r := range rules {
		dir := filepath.Dir(string(r.Path))
		covered := func(r pid1api.PathRule) bool {
			rel, err := filepath.Rel(string(r.Path), dir)
			return err == nil && filepath.IsLocal(rel)
		}
		if !slices.ContainsFunc(rules, covered) && list(dir) == nil {
			return dir
		}
	}
	return ""
}

// list opens a directory, which Landlock refuses outside of its rules.
func list(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// mknod makes a copy of the /dev/null node and removes it.
func mknod(path string) error {
	err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	if err == nil {
		unix.Unlink(path)
	}
	return err
}

// typeAhead tries TIOCSTI, which the filter refuses, on a file that is no terminal. Without the filter the
// kernel returns ENOTTY.
func typeAhead() error {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.IoctlSetPointerInt(fd, unix.TIOCSTI, 0)
}

// signalParent tests whether PID 1 may signal its parent. In its own pid namespace it has no parent, and
// signalParent returns ESRCH.
func signalParent() error {
	parent := os.Getppid()
	if parent == 0 {
		return unix.ESRCH
	}
	return unix.Kill(parent, 0)
}

// datagramSocket makes a socket by socketpair(2), which filters allow that refuse socket(2).
func datagramSocket() (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fds[0], unix.Close(fds[1])
}

// listen binds a datagram socket to an abstract name that the kernel chooses.
func (p *prober) listen() {
	fd, err := datagramSocket()
	if err != nil {
		return
	}
	p.abstract = fd
	if unix.Bind(fd, &unix.SockaddrUnix{}) == nil {
		p.name, _ = unix.Getsockname(fd)
	}
}

// reach connects to the socket of listen.
func (p *prober) reach() error {
	fd, err := datagramSocket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, p.name)
}

// landlocked records the results for Landlock. Call it after Landlock is applied and before any other
// restriction.
func (p *prober) landlocked(g *guest) {
	f := &g.facts
	f.LandlockABI = landlockABI()
	f.LandlockFS = p.node != "" && is(mknod(p.node), unix.EACCES) || p.outside != "" && is(list(p.outside), unix.EACCES)
	f.LandlockScope = p.name != nil && is(p.reach(), unix.EPERM)
	g.signalScope = f.LandlockScope && p.signal && is(signalParent(), unix.EPERM)
	if len(g.setup.Landlock) > 0 && !f.LandlockFS {
		g.problem("landlock", p.whyNot(1, "a device node can be created"))
	}
	if g.setup.Scoped && !f.LandlockScope {
		g.problem("landlock scopes", p.whyNot(6, "a socket outside the sandbox can be reached"))
	}
}

func (p *prober) whyNot(abi int, seen string) error {
	if have := landlockABI(); have < abi {
		return errors.New("need ABI " + strconv.Itoa(abi) + ", the kernel has " + strconv.Itoa(have))
	}
	return errors.New(seen)
}

// filtered records the result for seccomp.
func (p *prober) filtered(g *guest) {
	mode, _ := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if mode == 2 && is(typeAhead(), unix.EPERM) {
		return
	}
	g.facts.Seccomp, g.facts.SeccompLen = "", 0
	g.problem("seccomp", errors.New("TIOCSTI is not refused"))
}

// readFacts reads the remaining facts from the kernel, after all restrictions.
func (g *guest) readFacts() {
	f := &g.facts
	nnp, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	f.NoNewPrivs = nnp == 1
	f.CapBounding = boundingSet()
	if c, err := getCaps(); err == nil {
		// Under no_new_privs, execve gives this set to uid 0 and less to other users.
		f.CapEffective = c.permitted & f.CapBounding
	}
	f.ProcMasked = procMasked()
	f.SysReadOnly = sysReadOnly()
	f.CoreLimit = coreLimit()
	if !f.NoNewPrivs {
		g.problem("no_new_privs", errors.New("not set"))
	}
	if extra := f.CapEffective &^ (mask(g.setup.KeepCaps) | mask(g.setup.RootCaps)); extra != 0 {
		g.problem("capabilities", errors.New("a command would have capabilities 0x"+strconv.FormatUint(extra, 16)))
	}
}

// coreLimit returns PID 1's hard limit, the highest value available to a command.
func coreLimit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Max
}

// procMasked reports whether kernel settings cannot be changed and kernel memory cannot be read. A masked file
// is /dev/null.
func procMasked() bool {
	fd, err := unix.Open("/proc/sys/kernel/core_pattern", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return false
	}
	fd, err = unix.Open("/proc/kcore", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	n, _ := unix.Read(fd, make([]byte, 1))
	return n <= 0
}

// sysReadOnly reports whether sysfs is mounted read-only or is absent.
func sysReadOnly() bool {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys", &fs); err != nil || int64(fs.Type) != unix.SYSFS_MAGIC {
		return true
	}
	return is(unix.Mkdir("/sys/.demesne", 0o700), unix.EROFS)
}

// handleProbe tests that the runner, and not the kernel, performs the calls that make and connect sockets.
func (g *guest) handleProbe(m *ipc.Message) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ipc.Errorf(ipc.CodeRequirement, "make socket in sandbox: %w", err)
	}
	defer unix.Close(fd)
	if _, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), 0, 0); e != pid1api.Probed {
		return ipc.Errorf(ipc.CodeRequirement, "connect in sandbox: the runner does not perform it: %w", e)
	}
	return g.peer.Reply(m, struct{}{}, nil)
}
