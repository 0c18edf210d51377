package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// ChangeEgress adds rules to a live sandbox's. Tunnels that are open stay. A sandbox
// without a gateway has no egress to change.
func (c *Client) ChangeEgress(ctx context.Context, change runner.EgressChange) error {
	c = c.of(ctx, change.Sandbox)
	return c.lost(c.peer.Call(ctx, api.OpEgress, change, nil, nil))
}

// openLog makes the log for a sandbox that has one. What is there already is added to.
func (s *sourceFiles) openLog(spec *runner.Spec) error {
	if spec.Egress == nil || spec.Egress.Log == "" {
		return nil
	}
	own := *spec.Egress // the caller's stays as it was
	spec.Egress = &own
	abs, err := absPath(own.Log)
	if err != nil {
		return err
	}
	own.Log = abs
	for _, dir := range []string{spec.Out, spec.Workspace} {
		if dir == "" {
			continue
		}
		real, err1 := filepath.EvalSymlinks(filepath.Dir(abs))
		dir, err2 := filepath.EvalSymlinks(dir)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if within(real, dir) {
			return fmt.Errorf("%q is in %q, where the sandbox can write", abs, dir)
		}
	}
	f, err := openLocked(abs)
	if err != nil {
		return err
	}
	s.byName[api.FileLog] = f
	return nil
}

// openLocked opens a log to add to, with a lock that lasts as long as anybody has it open.
// Whoever removes old ones locks them first: one that is going is waited for, and made anew. A
// file system without locks has none.
func openLocked(path string) (*os.File, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		locked := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		var st unix.Stat_t
		going := locked == unix.EWOULDBLOCK || unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
		if !going || time.Now().After(end) {
			return f, nil
		}
		f.Close()
	}
}

// asked hands a question to who was named in Options, and the answer back. Without
// anybody to ask the answer is no, at once.
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
	c.peer.Call(context.Background(), api.OpAnswer, a, nil, nil) // too late is no news
}
