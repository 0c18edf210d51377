package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// sourceFiles holds the descriptors of one create call.
type sourceFiles struct {
	c       *Client
	byName  ipc.Files
	private []place // of the client's run directory
	kept    []place
	granted grants.Record // the changes that must be taken back at the end
	ids     *os.File      // the runner's user namespace
	servers []server      // of mounts
}

func (s *sourceFiles) close() {
	for _, f := range s.byName {
		f.Close()
	}
	s.ids.Close() // Close of nil does nothing
	s.serve()
}

// sources opens each file that spec names, once. It makes the paths in spec absolute.
func (c *Client) sources(spec *runner.Spec) (_ *sourceFiles, err error) {
	s := &sourceFiles{c: c, byName: ipc.Files{}, private: c.dir.private(), kept: c.dir.kept()}
	defer func() {
		if err != nil {
			s.unlisten()
			s.close()
		}
	}()
	spec.Inputs = slices.Clone(spec.Inputs) // does not modify the caller's slice
	for i := range spec.Inputs {
		in := &spec.Inputs[i]
		if err := s.source(api.SourceInput(i), &in.Path, unix.MOUNT_ATTR_RDONLY); err != nil {
			return nil, fmt.Errorf("open input: %w", err)
		}
	}
	if err := s.source(api.SourceOut, &spec.Out, 0); err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	workspace := covered(spec, &runner.Mount{Source: spec.Workspace, Target: "/workspace"})
	if err := s.source(api.SourceWorkspace, &spec.Workspace, 0, workspace...); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := s.mounts(spec); err != nil {
		return nil, err
	}
	spec.Exposed = slices.ContainsFunc(writable(spec), exposed)
	if spec.Rootfs != nil {
		own := *spec.Rootfs // does not modify the caller's Rootfs
		spec.Rootfs = &own
		if err := s.source(api.SourceRootfs, &own.Dir, unix.MOUNT_ATTR_RDONLY); err != nil {
			return nil, fmt.Errorf("open image: %w", err)
		}
	}
	if err := s.openLogs(spec); err != nil {
		return nil, fmt.Errorf("make egress log: %w", err)
	}
	if spec.Egress != nil {
		if f, err := openSource(c.proxy, false); err == nil { // without the file no network can be made, which the runner reports
			s.byName[api.FileProxy] = f
		}
	}
	if err := s.listen(spec.Publish); err != nil {
		return nil, err
	}
	if c.hello.Mode == userns.ModeRoot {
		init := c.init
		if err := s.source(api.SourceInit, &init, unix.MOUNT_ATTR_RDONLY); err != nil {
			return nil, fmt.Errorf("open init: %w", err)
		}
	}
	if len(s.byName) > ipc.MaxFiles {
		return nil, &ipc.Error{
			Code: ipc.CodeInvalid, Text: fmt.Sprintf("open inputs: %d inputs and mounts are more than a sandbox can have", len(spec.Inputs)+len(spec.Mounts)),
			Hint: "put the files into a directory, and pass that directory",
		}
	}
	return s, s.record(spec)
}

// mounts opens the sources of spec.Mounts. A source that is not a directory can only be mounted read-only: programs
// replace files by renaming others over them, which a mount point refuses.
func (s *sourceFiles) mounts(spec *runner.Spec) error {
	spec.Mounts = slices.Clone(spec.Mounts) // does not modify the caller's slice
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		var attr uint64
		if m.ReadOnly {
			attr = unix.MOUNT_ATTR_RDONLY
		}
		if m.Source == "" {
			return ipc.Errorf(ipc.CodeInvalid, "open mount %q: no source", m.Target)
		}
		if m.Server != "" {
			if err := s.startServer(m, spec.Lifetime == runner.Persistent); err != nil {
				return err
			}
		}
		if m.Upper != "" {
			attr = unix.MOUNT_ATTR_RDONLY
			if err := s.upper(i, m, covered(spec, m)); err != nil {
				return fmt.Errorf("open mount: %w", err)
			}
		}
		if err := s.source(api.SourceMount(i), &m.Source, attr, covered(spec, m)...); err != nil {
			return fmt.Errorf("open mount: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(s.byName[api.FileSame+api.SourceMount(i)].Fd()), &st); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if !m.ReadOnly && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return ipc.Errorf(ipc.CodeInvalid, "open mount %q: only a directory can be mounted for writing", m.Source)
		}
	}
	return nil
}

// upper opens the directory of a mount's changes. Only the changes root has such directories.
func (s *sourceFiles) upper(i int, m *runner.Mount, covered []string) (err error) {
	if m.Source, err = absPath(m.Source); err != nil {
		return err
	}
	if err := apart(m.Source, s.kept, covered...); err != nil {
		return err
	}
	if root := s.c.dir.changesRoot; root == "" || m.Upper == root || !fsutil.Within(m.Upper, root) || filepath.Clean(m.Upper) != m.Upper {
		return ipc.Errorf(ipc.CodeInvalid, "changes %q: not below %q", m.Upper, root)
	}
	return s.open(api.SourceUpper(i), m.Upper, 0)
}

// granted returns the names of the sources that the end of the sandbox settles. Without an image or nesting, the
// sandbox can write nothing outside of /out that must be settled.
func granted(spec *runner.Spec) []string {
	names := []string{api.SourceOut}
	for i, m := range spec.Mounts {
		if m.Upper != "" {
			names = append(names, api.SourceUpper(i))
		}
	}
	if spec.Rootfs == nil && !spec.Nesting {
		return names
	}
	names = append(names, api.SourceWorkspace)
	for i, m := range spec.Mounts {
		if !m.ReadOnly && m.Upper == "" {
			names = append(names, api.SourceMount(i))
		}
	}
	return names
}

// record writes down which of the caller's files the sandbox may change, see package grants. A runner with the
// caller's own rights does it itself, unless the record has sockets.
func (s *sourceFiles) record(spec *runner.Spec) error {
	if api.RecordsGrants(s.c.hello.Mode) && len(s.granted.Sockets) == 0 {
		return nil
	}
	for _, name := range granted(spec) {
		f := s.byName[api.FileSame+name]
		if f == nil {
			continue
		}
		d, err := grants.Look(f)
		if err != nil {
			return err
		}
		d.Restore = name == api.SourceOut && spec.Nesting && spec.Exposed
		d.Shown = s.c.hello.Mode == userns.ModeRoot && (name != api.SourceOut || d.Owner != 0)
		s.granted.Dirs = append(s.granted.Dirs, d)
	}
	switch s.c.hello.Mode {
	case userns.ModeRoot:
		s.granted.IDs = &runner.IDRange{Host: rootBase, Size: rangeSize}
	case userns.ModeMinimal:
		s.granted.IDs = &runner.IDRange{}
	}
	var err error
	spec.Granted, err = s.granted.Write(s.c.dir.path, s.c.dir.key)
	return err
}

// refused removes the sockets and the record of a call that made no sandbox. If the runner has ended, its reaper
// removes them instead. The runner does not learn that a call was cancelled, and may still make the sandbox. It then
// removes them at the sandbox's end.
func (s *sourceFiles) refused(spec runner.Spec, err error) {
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if err != nil && !isGone(err) && !cancelled {
		s.unlisten()
		grants.Remove(s.c.dir.path, spec.Granted)
	}
}

func (s *sourceFiles) source(name string, path *string, attr uint64, covered ...string) error {
	if *path == "" {
		return nil
	}
	abs, err := absPath(*path)
	if err != nil {
		return err
	}
	*path = abs
	if err := apart(abs, s.private); err != nil {
		return err
	}
	if attr&unix.MOUNT_ATTR_RDONLY == 0 {
		if err := apart(abs, s.kept, covered...); err != nil {
			return err
		}
	}
	return s.open(name, abs, attr)
}

// open opens a source whose path was checked.
func (s *sourceFiles) open(name, abs string, attr uint64) error {
	f, err := openSource(abs, name != api.SourceInit)
	if err != nil {
		return err
	}
	s.byName[api.FileSame+name] = f
	if s.c.hello.Mode != userns.ModeRoot {
		return nil
	}
	ids, err := s.idsOf(name, f)
	if err != nil {
		return err
	}
	m, err := detach(f, ids, attr|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("bind %q: %w", abs, err)
	}
	s.byName[api.FileMount+name] = m
	return nil
}

// openSource opens the file that the caller named. If named is set, the path must not contain symbolic links: the
// caller has resolved them. A link there is newer and may come from a sandbox that has the directory (F2,
// F13).
func openSource(path string, named bool) (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if named {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
	}
	fd, err := fsutil.Openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// exposed reports whether any user other than the caller and root can reach the directory. It is false if a directory
// on the path denies search to group and others and belongs to the caller or root.
func exposed(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return true
	}
	for ; ; path = filepath.Dir(path) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return true
		}
		if st.Mode&0o011 == 0 && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) {
			return false
		}
		if path == "/" {
			return true
		}
	}
}

// idsOf returns the user namespace whose id map the mount of a source gets. For an /out that belongs to root see
// [outMaps]; all others use the runner's.
func (s *sourceFiles) idsOf(name string, f *os.File) (*os.File, error) {
	if name == api.SourceOut {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, os.NewSyscallError("fstat", err)
		}
		if st.Uid == 0 {
			ns, hand, err := s.c.outMap.get()
			if hand != nil {
				s.byName[api.FileOutMap] = hand
			}
			return ns, err
		}
	}
	if s.ids != nil {
		return s.ids, nil
	}
	var err error
	if s.ids, err = openAt(procFile(s.c.hello.PID, "ns/user")); errors.Is(err, os.ErrNotExist) {
		err = ipc.Errorf(ipc.CodeGone, "talk to runner: it ended")
	}
	return s.ids, err
}

// detach clones the mount at f with attr and with ids mapped by the user namespace ns. Root's files then appear as
// the sandbox root's, and files that it writes belong to root. A read-only source on a file system without id-mapped
// mounts (listed in mount_setattr(2)) is bound without a map.
func detach(f, ns *os.File, attr uint64) (*os.File, error) {
	for _, recursive := range []uint{unix.AT_RECURSIVE, 0} {
		m, err := openTree(f, recursive)
		if err != nil {
			return nil, err
		}
		idmapped := unix.MountAttr{
			Attr_set: attr | unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd()),
		}
		if err = unix.MountSetattr(int(m.Fd()), "", unix.AT_EMPTY_PATH|recursive, &idmapped); err == nil {
			return m, nil
		}
		m.Close()
	}
	if attr&unix.MOUNT_ATTR_RDONLY == 0 {
		return nil, fmt.Errorf("its filesystem has no id-mapped mounts")
	}
	m, err := openTree(f, unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	plain := unix.MountAttr{Attr_set: attr}
	if err := unix.MountSetattr(int(m.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &plain); err != nil {
		m.Close()
		return nil, os.NewSyscallError("mount_setattr", err)
	}
	return m, nil
}

func openTree(f *os.File, recursive uint) (*os.File, error) {
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|recursive)
	if err != nil {
		return nil, os.NewSyscallError("open_tree", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// absPath makes path absolute, relative to the caller's working directory rather than the runner's.
func absPath(path string) (string, error) {
	if path == "" || filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Abs(path)
}
