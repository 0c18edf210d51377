package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/container"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/limits/cgroup"
	"demesne/runner/network"
	"demesne/runner/network/proxyclient"
	"demesne/runner/pid1/pid1api"

	"demesne/runner/store"
)

// Machine is what all sandboxes of a runner share: the runner's directories, its view of the machine, and the
// programs beside it. [Machine.SetUp] sets the fields that are not set before; none changes afterwards, except those
// that mu guards. It is safe for concurrent use after SetUp.
type Machine struct {
	Boot    api.Boot
	Dir     string // private tmpfs: rootfs trees and libcontainer's state
	Limits  *limits.Host
	History *store.History
	Life    *os.File // the reaper waits until this pipe end is closed
	Clock   *grants.Clock
	Proxy   proxyclient.Proxy // shared by all sandboxes
	Groups  network.Groups
	Load    Load

	kernel  string
	reserve network.Reserve
	starter container.Starter
	turns   turns

	mu    sync.Mutex   // guards the fields below
	init  string       // see initProgram
	store *store.Store // see Store
}

// SetUp does the one-time work. It finds cgroups, mounts the private tmpfs and, for libcontainer, a cgroup2 of the
// runner's own namespace. It calls meanwhile, which must not wait, before the steps that a caller waits for.
func (m *Machine) SetUp(meanwhile func()) (err error) {
	m.turns = make(turns, runtime.NumCPU()+1)
	if !m.minimal() {
		m.reserve.Begin(m.Boot.Network)
	}
	if m.kernel, err = kernelRelease(); err != nil {
		return err
	}
	if m.History, err = store.OpenHistory(filepath.Join(m.Boot.RunDir, "state")); err != nil {
		return err
	}
	meanwhile()
	if !m.Boot.NoMounts {
		cgroup.AllowMounts()
	}
	// Both calls open what they need of /sys/fs/cgroup before mountCgroup2 covers it.
	m.Limits = limits.Open(m.Boot.Key, len(m.Boot.CgroupAt) > 0)
	limits.Default() // caches its result
	m.starter.Boot = m.Boot
	if m.minimal() {
		m.Dir = filepath.Join(m.Boot.RunDir, "scratch", m.Boot.Key)
		return os.MkdirAll(m.Dir, 0o700)
	}
	limits.Share()
	m.Dir = filepath.Join(m.Boot.RunDir, "mnt")
	m.starter.State, m.starter.Types = m.containers(), []any{
		pid1api.Setup{}, pid1api.Facts{}, pid1api.Exec{}, pid1api.Executed{}, pid1api.Exited{},
		api.Created{}, api.ExecRequest{}, api.ExecReply{}, api.ExecTarget{}, runner.Result{}, store.HistoryRecord{}, grants.Record{},
	}
	if err := m.mountOwn(); err != nil {
		return err
	}
	go learnPidfds()
	return mountCgroup2()
}

// minimal reports whether the machine forbids namespaces.
func (m *Machine) minimal() bool { return m.Boot.Minimal() }

// Close ends what the machine has for sandboxes, after the last of them.
func (m *Machine) Close() {
	m.Proxy.Close()
	if m.minimal() {
		os.Remove(m.Dir)
	}
}

// askReaper makes the reaper remove the sockets of ended sandboxes.
func (m *Machine) askReaper() { m.Life.Write([]byte("t")) }

// learnPidfds makes package os detect whether pidfds work. Package os starts a process for that, so do it before
// the runner starts any.
func learnPidfds() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Release()
	}
}

// mountOwn mounts the runner's private tmpfs. The mounts of the runner's namespace are slaves already (userns.c).
func (m *Machine) mountOwn() error {
	// libcontainer reads /proc through a clone of the mount if it can get one. Freeing each clone waits for an RCU
	// grace period of the whole machine. Only the runner mounts here, so the clone protects against nothing. Where
	// clones are refused, libcontainer does without. A recursive bind of a directory above /proc omits it, too.
	unix.Mount("", "/proc", "", unix.MS_UNBINDABLE, "")
	if err := unix.Mount("demesne", m.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("mount %q: %w", m.Dir, err)
	}
	// Unbindable: a bind of a caller's directory that contains this mount omits it. Otherwise one sandbox would see
	// the trees of the others.
	if err := unix.Mount("", m.Dir, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("make %q unbindable: %w", m.Dir, err)
	}
	// Both are separate mounts and therefore not unbindable. libcontainer's state directory is a layer of the
	// overlay that protects the runner's own program from being overwritten from inside (CVE-2019-5736). Without it
	// libcontainer would copy the program for each sandbox.
	for _, dir := range []string{m.containers(), m.shown()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("demesne", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
			return fmt.Errorf("mount %q: %w", dir, err)
		}
	}
	if err := unix.Mount("", m.shown(), "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %q: %w", m.shown(), err)
	}
	return nil
}

// containers returns libcontainer's state directory.
func (m *Machine) containers() string { return filepath.Join(m.Dir, "libcontainer") }

// shown returns the directory where trees appear in the mount namespaces of sandboxes, even of those already
// running.
func (m *Machine) shown() string { return filepath.Join(m.Dir, "shown") }

// mountCgroup2 gives libcontainer the cgroup mount that it requires, even where the host has no visible one
// (nested) or a v1 hierarchy. The mount belongs to the runner's own cgroup namespace and is only read.
func mountCgroup2() error {
	const at = "/sys/fs/cgroup"
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Read-only. Otherwise libcontainer would make cgroups that package limits does not know.
	if _, err := os.Stat(at); err != nil {
		if err := unix.Mount("sys", "/sys", "tmpfs", flags, "mode=0755"); err != nil {
			return fmt.Errorf("mount %q: %w", "/sys", err)
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("mount %q: %w", at, err)
		}
	}
	err := unix.Mount("cgroup2", at, "cgroup2", flags|unix.MS_RDONLY, "")
	if err == unix.EBUSY { // the host's cgroup2 is there, and mount(2) refuses a file system on top of itself
		if err = unix.Mount("sys", at, "tmpfs", flags, "mode=0755"); err == nil {
			err = unix.Mount("cgroup2", at, "cgroup2", flags|unix.MS_RDONLY, "")
		}
	}
	if err != nil {
		return fmt.Errorf("mount %q: %w", at, err)
	}
	return nil
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", os.NewSyscallError("uname", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// Store opens the directory of persistent sandboxes. A caller creates that directory for the first of them.
func (m *Machine) Store() (*store.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Boot.SandboxRoot == "" {
		return nil, errors.New("the user has no home directory")
	}
	var err error
	if m.store == nil {
		m.store, err = store.Open(m.Boot.SandboxRoot)
	}
	return m.store, err
}

// initProgram returns demesne-init, to be bound in a sandbox. Callers of real root send it as a mount, because the
// runner's ids may be unable to search its path. The first such mount is kept: a prepared sandbox has no caller.
func (m *Machine) initProgram(msg *ipc.Message) (rootfs.Source, error) {
	sent := source(msg, api.SourceInit, m.Boot.Init)
	m.mu.Lock()
	defer m.mu.Unlock()
	if sent.Mount != nil && m.init == "" {
		at := filepath.Join(m.Dir, "init")
		if err := keepMount(sent.Mount, at); err != nil {
			return rootfs.Source{}, fmt.Errorf("keep init: %w", err)
		}
		m.init = at
	}
	if m.init != "" {
		return rootfs.Source{Path: m.init}, nil
	}
	return sent, nil
}

func source(m *ipc.Message, name, path string) rootfs.Source {
	return rootfs.Source{Path: path, Same: m.File(api.FileSame + name), Mount: m.File(api.FileMount + name)}
}

// keepMount attaches a detached mount of a file.
func keepMount(mount *os.File, at string) error {
	defer mount.Close()
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return err
	}
	return unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
