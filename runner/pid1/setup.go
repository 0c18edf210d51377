package pid1

import (
	"errors"
	"os"
	"slices"
	"time"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/seccomp"

	"golang.org/x/sys/unix"
)

// handleSetup restricts PID 1 and all processes it will start. A requested restriction that is not in effect
// adds a line to Problems; the runner decides what to do about it.
//
// The order is fixed. chroot(2) comes first: all paths lie in the tree. Landlock and seccomp need no_new_privs. Dropping the
// bounding set needs CAP_SETPCAP, so it precedes the drop of that capability. Seccomp comes last because it blocks system calls
// that the others make.
func (g *guest) handleSetup(m *ipc.Message) error {
	if g.ready {
		return ipc.Errorf(ipc.CodeInvalid, "set up: already done")
	}
	if err := m.Decode(&g.setup); err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "set up: %w", err)
	}
	g.ready = true
	if root := string(g.setup.Root); root != "" {
		if err := changeRoot(root); err != nil {
			return ipc.Errorf(ipc.CodeRequirement, "set up: change root: %w", err)
		}
	}
	before := probe(g.setup)
	defer before.close()

	// Sets it on this thread; go-landlock and the filter's TSYNC carry it to the others.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		g.problem("no_new_privs", err)
	}
	if g.setup.Subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			g.problem("subreaper", err)
		}
	}
	start := time.Now()
	if err := restrict(g.setup); err != nil {
		g.problem("landlock", err)
	}
	g.facts.Landlocked = time.Since(start)
	before.landlocked(g)

	if err := dropCaps(slices.Concat(g.setup.KeepCaps, g.setup.RootCaps)); err != nil {
		g.problem("capabilities", err)
	}
	start = time.Now()
	listener, err := g.load()
	if listener != nil {
		defer listener.Close()
	}
	switch {
	case errors.Is(err, seccomp.ErrListener):
		return ipc.Errorf(ipc.CodeRequirement, "set up: %w", err)
	case err != nil:
		g.problem("seccomp", err)
	}
	g.facts.Filtered = time.Since(start)
	before.filtered(g)
	if os.Getpid() == 1 {
		defaultSignal(perThreadSyscall) // no later call runs on all threads
	}
	g.readFacts()
	go warm(g.warmed)
	if err := g.peer.Reply(m, g.facts, ipc.Files{pid1api.FileListener: listener}); err != nil {
		return err
	}
	// Runs in parallel with the runner's handling of the reply.
	<-g.warmed
	g.protected = protectInit()
	return nil
}

// changeRoot makes a directory the root and the working directory of all threads. chroot(2) does not confine by itself. A process
// leaves by another chroot, which the filter refuses and for which commands lack the capability. Or it leaves by a descriptor
// of a directory outside, for which Landlock grants nothing.
func changeRoot(dir string) error {
	if err := unix.Chroot(dir); err != nil {
		return os.NewSyscallError("chroot", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// load applies the filter. listener is nil unless the filter is supervised.
func (g *guest) load() (listener *os.File, err error) {
	prog, err := seccomp.Filter(g.setup.Seccomp)
	if err != nil {
		return nil, err
	}
	if g.setup.Seccomp.Supervised {
		listener, err = seccomp.LoadSupervised(prog)
	} else {
		err = seccomp.Load(prog)
	}
	if err != nil {
		return nil, err
	}
	g.facts.Seccomp, g.facts.SeccompLen = seccomp.Digest(prog), len(prog)
	return listener, nil
}

func (g *guest) problem(layer string, err error) {
	g.facts.Problems = append(g.facts.Problems, layer+": "+err.Error())
}
