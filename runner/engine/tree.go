package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/limits"
)

// mount mounts the tree and opens the directories that teardown reads.
func (s *sandbox) mount(m *ipc.Message) (err error) {
	dir := filepath.Join(s.e.dir, s.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s.undoLate(func() { os.Remove(dir) })
	init, err := s.e.initProgram(m)
	if err != nil {
		return err
	}
	l := rootfs.Layout{
		Dir: dir, Size: s.spec.Limits.Disk, Inodes: inodes(s.spec.Limits.Disk), Hostname: s.spec.Hostname,
		NameServer: nameServer(s.egress), Trust: s.trusts,
		Init: init, Out: source(m, api.SourceOut, s.spec.Out),
	}
	if u := s.spec.User; u != nil {
		l.User = rootfs.User{UID: u.UID, GID: u.GID}
	}
	if s.spec.Workspace != "" {
		l.Workspace = source(m, api.SourceWorkspace, s.spec.Workspace)
	}
	for i, in := range s.spec.Inputs {
		from := source(m, api.SourceInput(i), in.Path)
		from.Socket = in.Socket
		l.Inputs = append(l.Inputs, rootfs.Bind{Name: in.Name, Source: from})
	}
	release, err := s.keepIn(&l)
	if err != nil {
		return err
	}
	defer release()
	if s.spec.Rootfs != nil {
		s.tree, err = s.mountImage(l, m)
	} else {
		s.tree, err = rootfs.MountHost(l)
	}
	if err != nil {
		return err
	}
	s.undoLate(func() { s.tree.Unmount() })
	if err := s.keptOnDisk(l); err != nil {
		return err
	}
	if s.image.scratch != "" {
		if err := s.watchScratch(); err != nil {
			return err
		}
	}
	s.undo.add(s.giveBack)
	if s.spare {
		return nil
	}
	return s.openShared()
}

// inodes bounds the number of inodes of a tree. Empty files take kernel memory that size= does not count.
func inodes(bytes int64) int64 {
	const most = 256 << 10
	if bytes <= 0 {
		return most
	}
	return min(max(bytes/4096, 1024), most)
}

func source(m *ipc.Message, name, path string) rootfs.Source {
	return rootfs.Source{Path: path, Same: m.File(api.FileSame + name), Mount: m.File(api.FileMount + name)}
}

// watch starts the watchdog for the limits that no kernel mechanism enforces.
func (s *sandbox) watch() {
	s.undo.add(s.group.Watch(s.pid, s.watched(), func(r runner.Reason, detail string) { go s.terminate(r, detail) }))
}

// watched returns what the watchdog must measure, because no kernel mechanism may enforce it.
func (s *sandbox) watched() limits.Watched {
	w := limits.Watched{PIDs: s.tree == nil || s.spec.Rootfs != nil && !s.e.boot.OneID()}
	for _, d := range []limits.Written{
		{Dir: s.shared.out}, {Dir: s.shared.work}, {Dir: s.image.upper, Upper: true}, {Dir: s.kept.written, Upper: true, Whole: true},
	} {
		if d.Dir != nil {
			w.Dirs = append(w.Dirs, d)
		}
	}
	return w
}

// initProgram returns demesne-init, to be bound in a sandbox. Callers of real root send it as a mount, because the
// runner's ids may be unable to search its path. The first such mount is kept: a prepared sandbox has no caller.
func (e *Engine) initProgram(m *ipc.Message) (rootfs.Source, error) {
	sent := source(m, api.SourceInit, e.boot.Init)
	e.mu.Lock()
	defer e.mu.Unlock()
	if sent.Mount != nil && e.init == "" {
		at := filepath.Join(e.dir, "init")
		if err := keepMount(sent.Mount, at); err != nil {
			return rootfs.Source{}, fmt.Errorf("keep init: %w", err)
		}
		e.init = at
	}
	if e.init != "" {
		return rootfs.Source{Path: e.init}, nil
	}
	return sent, nil
}

// keepMount attaches a detached mount of a file.
func keepMount(mount *os.File, at string) error {
	defer mount.Close()
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return err
	}
	return unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
