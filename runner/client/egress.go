package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// ChangeEgress adds rules to those of a live sandbox. Open tunnels are not affected. It fails for a sandbox without a
// gateway.
func (c *Client) ChangeEgress(ctx context.Context, change runner.EgressChange) error {
	c = c.of(ctx, change.Sandbox)
	return c.lost(c.peer.Call(ctx, api.OpEgress, change, nil, nil))
}

// openLog opens the log of a sandbox that has one. It appends to an existing file.
func (s *sourceFiles) openLog(spec *runner.Spec) error {
	if spec.Egress == nil || spec.Egress.Log == "" {
		return nil
	}
	own := *spec.Egress // does not modify the caller's Egress
	spec.Egress = &own
	abs, err := absPath(own.Log)
	if err != nil {
		return err
	}
	own.Log = abs
	for _, dir := range append(writable(spec), spec.Out) {
		real, err1 := filepath.EvalSymlinks(filepath.Dir(abs))
		dir, err2 := filepath.EvalSymlinks(dir)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if within(real, dir) {
			return fmt.Errorf("%q is in %q, which the sandbox can write to", abs, dir)
		}
	}
	f, err := openLocked(abs)
	if err != nil {
		return err
	}
	s.byName[api.FileLog] = f
	return nil
}

// openLocked opens a log for appending, with a shared lock that lasts until all its descriptors are closed. A process
// that removes old logs locks them first. openLocked waits up to a second for such a removal and creates the log
// anew. A file system without locks has no such protection.
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
