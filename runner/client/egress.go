package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// ChangeEgress adds rules to a live sandbox's rules, and replaces the headers of its routes. Open tunnels and running
// requests are not affected. It fails for a sandbox without a gateway.
func (c *Client) ChangeEgress(ctx context.Context, change runner.EgressChange) error {
	c = c.of(ctx, change.Sandbox)
	return c.lost(c.peer.Call(ctx, api.OpEgress, change, nil, nil))
}

// ChangeLimits changes limits of a live sandbox. It fails for one without processes, and for a limit that nothing can
// change there.
func (c *Client) ChangeLimits(ctx context.Context, change runner.LimitChange) error {
	c = c.of(ctx, change.Sandbox)
	return c.lost(c.peer.Call(ctx, api.OpLimits, change, nil, nil))
}

// openLogs opens the files that the proxy of a sandbox writes: its log, and the usage records of its routes. It appends
// to existing files.
func (s *sourceFiles) openLogs(spec *runner.Spec) (err error) {
	if spec.Egress == nil {
		return nil
	}
	own := *spec.Egress // does not modify the caller's Egress
	spec.Egress = &own
	if own.Log != "" {
		if own.Log, err = s.openLog(spec, api.FileLog, own.Log); err != nil {
			return err
		}
	}
	own.Routes = slices.Clone(own.Routes)
	opened := map[string]bool{}
	for i := range own.Routes {
		r := &own.Routes[i]
		if r.Gated = r.Gate != nil; r.Gated {
			if s.byName[api.FileGate(i)], err = dup(r.Gate); err != nil {
				return fmt.Errorf("gate of route on port %d: %w", r.Port, err)
			}
		}
		if r.Record == "" {
			continue
		}
		if r.Record, err = absPath(r.Record); err != nil {
			return err
		}
		if opened[r.Record] { // the proxy uses the same descriptor
			continue
		}
		opened[r.Record] = true
		if _, err := s.openLog(spec, api.FileRecord(i), r.Record); err != nil {
			return fmt.Errorf("usage records of route on port %d: %w", r.Port, err)
		}
	}
	return nil
}

// dup returns another descriptor of f.
func dup(f *os.File) (*os.File, error) {
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), f.Name()), nil
}

// openLog opens a file as name and returns its absolute path. The file must be in no directory that the sandbox can
// write to.
func (s *sourceFiles) openLog(spec *runner.Spec, name, path string) (string, error) {
	abs, err := absPath(path)
	if err != nil {
		return "", err
	}
	for _, dir := range writable(spec) {
		real, err1 := filepath.EvalSymlinks(filepath.Dir(abs))
		dir, err2 := filepath.EvalSymlinks(dir)
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		if fsutil.Within(real, dir) || fsutil.Within(filepath.Join(real, filepath.Base(abs)), dir) {
			return "", fmt.Errorf("%q is in %q, which the sandbox can write to", abs, dir)
		}
	}
	f, err := openLocked(abs)
	if err != nil {
		return "", err
	}
	s.byName[name] = f
	return abs, nil
}

// writable returns the host's directories and files that the sandbox can write to.
func writable(spec *runner.Spec) (all []string) {
	for _, dir := range []string{spec.Out, spec.Workspace} {
		if dir != "" {
			all = append(all, dir)
		}
	}
	for _, m := range spec.Mounts {
		if dir := m.Written(); dir != "" {
			all = append(all, dir)
		}
	}
	return all
}

// openLocked opens a log for appending, with a shared lock that lasts until all its descriptors are closed. A process
// that removes old logs locks them first. openLocked waits up to a second for such a removal and creates the log again. A file
// system without locks has no such protection.
func openLocked(path string) (*os.File, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		locked := flock.Try(f, flock.Shared)
		var st unix.Stat_t
		going := locked == flock.ErrLocked || unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
		if !going || time.Now().After(end) {
			return f, nil
		}
		f.Close()
	}
}

// asked passes a question to Options.Ask and sends the answer back. Without an Ask function, it immediately reports
// that nothing was answered.
func (c *Client) asked(m *ipc.Message) {
	var q runner.Question
	if err := m.Decode(&q); err != nil {
		return
	}
	a := api.Answer{Sandbox: q.Sandbox, ID: q.ID, Silent: true}
	if c.ask != nil {
		allow, answered := c.ask(q)
		a.Allow, a.Silent = allow, !answered
	}
	c.peer.Call(context.Background(), api.OpAnswer, a, nil, nil) // the error of a late answer is ignored
}
