package e2b

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/runner"
	"demesne/server"
	"demesne/server/e2b/envd"
	"demesne/session"
)

// readyTime bounds the time until the ready command succeeds, and readyEvery is the pause between two tries.
const (
	readyTime  = 2 * time.Minute
	readyEvery = 100 * time.Millisecond
)

// begin starts the program, and waits until it is ready, or the sandbox is paused or removed.
func (e *entry) begin(ctx context.Context, up *startup) error {
	if up == nil {
		return nil
	}
	main, err := e.shell(ctx, up, up.Cmd)
	if err != nil {
		return fmt.Errorf("start command: %w", err)
	}
	e.mu.Lock()
	e.begun = true
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readyTime) // of the ready commands: it would end the program too
	defer cancel()
	ended := main.dead
	for up.Ready != "" && !e.gone() {
		p, err := e.shell(ctx, up, up.Ready)
		if err != nil {
			return fmt.Errorf("ready command: %w", err)
		}
		select {
		case <-p.dead:
		case <-ctx.Done():
			return fmt.Errorf("ready command: it did not succeed within %s", readyTime)
		}
		if p.succeeded() {
			break
		}
		select {
		case <-time.After(readyEvery):
		case <-ended:
			if !main.succeeded() { // it may have left a daemon otherwise
				return errors.New("start command: it failed before the ready command succeeded")
			}
			ended = nil
		case <-ctx.Done():
		}
	}
	return nil
}

// shell starts a command of the template, whose output is dropped.
func (e *entry) shell(ctx context.Context, up *startup, text string) (*process, error) {
	a, err := e.account(ctx, up.User)
	if err != nil {
		return nil, err
	}
	dir, err := e.workdir(ctx, a, up.Dir)
	if err != nil {
		return nil, err
	}
	none, c := false, &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", text}}
	p := &process{of: e, dead: make(chan struct{}), info: &envd.ProcessInfo{Config: c}}
	cmd := runner.Command{Argv: append([]string{c.Cmd}, c.Args...), Env: e.environ(a, nil), Dir: dir, User: a.user}
	return p, p.piped(ctx, e, cmd, &envd.StartRequest{Process: c, Stdin: &none})
}

// beginAgain starts the program of a sandbox whose processes were ended.
func (e *entry) beginAgain() {
	if err := e.begin(context.Background(), e.snap().Start); err != nil {
		e.note("error", err.Error())
	}
}

// resume resumes a paused sandbox for at least that time, and reports whether it was paused. With cold it ends the processes that
// were kept, and starts the sandbox. A running one is extended.
func (e *entry) resume(ctx context.Context, d time.Duration, cold bool) (was bool, err error) {
	again := false
	defer func() {
		if again { // the sandbox can be removed meanwhile
			e.beginAgain()
		}
	}()
	e.turn.Lock()
	defer e.turn.Unlock()
	if e.store.get(e.rec.ID) != e {
		return false, session.ErrNotFound
	}
	rec := e.snap()
	was = rec.State == paused
	if was && cold && !rec.Cold {
		if err := e.store.backend.Stop(ctx, rec.name()); err != nil {
			return true, err
		}
		rec.Cold = true
		e.change(func(r *record) { r.Cold = true })
	}
	if was {
		if err := e.wake(ctx); err != nil {
			return true, err
		}
		e.mu.Lock()
		again = rec.Cold || !e.begun
		e.mu.Unlock()
		e.note("info", "resumed")
	}
	until := time.Now().Add(d)
	err = e.change(func(r *record) {
		r.State = running
		if was || until.After(r.End) {
			r.End = until
		}
	})
	e.arm()
	return was, err
}

// wake starts or resumes the processes: any command does.
func (e *entry) wake(ctx context.Context) error {
	e.mu.Lock()
	if e.rec.Cold {
		e.live = nil
	}
	e.mu.Unlock()
	return e.with(ctx, func(sb server.Sandbox) error { return touch(ctx, sb) })
}
