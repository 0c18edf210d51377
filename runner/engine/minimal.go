package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// hostReadable lists the paths of the host that a sandbox without namespaces may read and execute. The host rootfs
// binds the same ones, see package rootfs.
var hostReadable = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/group", "/etc/hosts",
	"/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/mime.types",
	"/proc", "/sys/devices/system/cpu",
}

var hostWritable = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// makeMinimal makes a sandbox where the machine forbids namespaces. Commands run in the host's tree, confined by
// Landlock and seccomp alone. /in, /out and /workspace do not exist; $DEMESNE_IN and similar variables name their
// substitutes. The processes are descendants of a demesne-init that is a subreaper instead of PID 1.
func (s *sandbox) makeMinimal(m *ipc.Message, t *stages) (err error) {
	if s.spec.Rootfs != nil {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "mount image: this machine forbids namespaces: " + s.e.boot.ModeWhy,
			Hint: s.e.boot.ModeFix,
		}
	}
	if s.egress != nil || len(s.spec.Publish) > 0 || slices.ContainsFunc(s.spec.Inputs, func(in runner.Input) bool { return in.Socket }) {
		return &ipc.Error{
			Code: ipc.CodeRequirement,
			Text: "make network: this machine forbids namespaces: " + s.e.boot.ModeWhy,
			Hint: s.e.boot.ModeFix,
		}
	}
	if err := s.keep(); err != nil {
		return err
	}
	if s.group, err = s.e.host.New(s.id, s.spec.Limits); err != nil {
		return err
	}
	s.undo.add(func() { s.group.Close() })
	if err := s.layOut(); err != nil {
		return err
	}
	t.mark("scratch")
	if err := s.startPlain(); err != nil {
		return err
	}
	t.mark("clone")
	if err := s.group.Add(s.pid); err != nil {
		return err
	}
	facts, err := s.setUpGuest(s.minimalSetup())
	if err != nil {
		return err
	}
	t.mark("guest")
	if facts.LandlockABI == 0 || !facts.LandlockFS {
		return ipc.Errorf(ipc.CodeRequirement, "restrict sandbox: neither namespaces nor Landlock: nothing would confine it")
	}
	s.seen = seen{facts: facts}
	return s.complete(m, t)
}

// layOut makes the scratch tree: in/ has links to the inputs, the rest is empty.
func (s *sandbox) layOut() (err error) {
	dir := filepath.Join(s.e.dir, s.id)
	if s.kept.box != nil {
		dir, s.kept.onDisk = s.kept.box.Tree(), true
	} else {
		s.undo.add(func() { os.RemoveAll(dir) })
	}
	if err := os.RemoveAll(filepath.Join(dir, "in")); err != nil { // from an earlier run
		return err
	}
	s.paths = paths{
		in: filepath.Join(dir, "in"), out: s.spec.Out, workspace: filepath.Join(dir, "workspace"),
		home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
	}
	if s.spec.Workspace != "" {
		s.paths.workspace = s.spec.Workspace
	}
	for _, p := range []string{s.paths.in, filepath.Join(dir, "workspace"), s.paths.home, s.paths.tmp} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
	}
	for _, in := range s.spec.Inputs {
		if err := os.Symlink(in.Path, filepath.Join(s.paths.in, in.Name)); err != nil {
			return err
		}
	}
	if s.shared.out, err = os.Open(s.spec.Out); err != nil {
		return err
	}
	if err := s.lookAtShared(); err != nil {
		return err
	}
	s.undo.add(s.giveBack)
	return nil
}

func (s *sandbox) startPlain() error {
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command(s.e.boot.Init)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return err
	}
	s.pid = cmd.Process.Pid
	s.guest = ipc.NewPeer(ipc.NewConn(ours), s.fromGuest)
	go s.serveGuest()
	s.undo.add(func() {
		// When the socket closes, demesne-init kills what it started and exits.
		s.guest.Close()
		cmd.Wait()
		s.group.Kill()
	})
	return nil
}

// minimalSetup returns the restrictions of a sandbox without namespaces. It is pure.
func (s *sandbox) minimalSetup() pid1api.Setup {
	g := pid1api.Setup{
		Scoped: true, NoTCP: true, Subreaper: true,
		Seccomp: pid1api.SeccompOptions{NoSUID: true, NoSocket: true},
	}
	grant := func(a pid1api.Access, paths ...string) {
		for _, p := range paths {
			g.Landlock = append(g.Landlock, pid1api.PathRule{Path: ipc.Bytes(p), Access: a})
		}
	}
	grant(pid1api.AccessReadExec, hostReadable...)
	for _, in := range s.spec.Inputs {
		grant(pid1api.AccessReadExec, in.Path)
	}
	grant(pid1api.AccessReadWrite, hostWritable...)
	grant(pid1api.AccessReadExec, s.paths.in)
	grant(pid1api.AccessReadWrite, s.paths.out, s.paths.workspace, s.paths.home, s.paths.tmp)
	return g
}

// rlimits returns the group's limits. Without a user namespace it omits RLIMIT_NPROC, which would count the user's
// other processes (getrlimit(2)).
func (s *sandbox) rlimits() []pid1api.Rlimit {
	r := s.group.Rlimits()
	if s.tree != nil {
		return r
	}
	return slices.DeleteFunc(r, func(l pid1api.Rlimit) bool { return l.Resource == unix.RLIMIT_NPROC })
}
