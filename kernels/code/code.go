// Package code keeps kernels in sandboxes for the frontends: MCP's tools of the set code, `demesne repl`, and the kernels that
// Jupyter starts.
//
//	s, err := code.Start(ctx, service, code.Options{Language: python}, callbacks)
//	defer s.Close()
//	r, err := s.Execute(ctx, kernels.Execution{Code: "1 + 1"})
//
// A Session is a sandbox of package session with one kernel of package kernels. The sandbox has no other use, unless
// Options.Create has a key or Options.Sandbox is set: two sessions see nothing of each other.
//
//	code.go      a session: executions in their order, restart and end; start.go: which kernel it starts
//	packages.go  dependencies: names, and their installation in the sandbox
//	death.go     why a kernel ended
//	store.go     the sessions of a long-lived frontend: ids, limits, idle times; prepared.go: sessions that are started ahead
package code

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"demesne/kernels"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/session"
)

// Session is a sandbox with a kernel. Its methods may be called concurrently.
type Session struct {
	ID        string // unique in its Store; empty: the session is in none
	Sandbox   *session.Sandbox
	Language  languages.Language
	Installed *Installed // the dependencies of Options; nil: there were none
	Created   time.Time

	service *session.Service
	options Options
	keep    bool          // the sandbox outlives the session
	turn    chan struct{} // holds one value while the kernel executes. Go serves waiting senders in their order

	mu     sync.Mutex
	kernel *kernels.Running
	death  *Death    // of the kernel; nil: it lives, as far as is known
	closed bool      // the sandbox is being removed, or was removed
	users  int       // calls that use the session now
	used   time.Time // when the last of them ended, or the kernel had started
}

// Start makes a sandbox, or finds the one with its key, and starts a kernel in it. It waits until the kernel answers, and
// until the dependencies are installed. An installation that fails is not an error: see [Session.Installed].
func Start(ctx context.Context, s *session.Service, o Options, cb session.Callbacks) (_ *Session, err error) {
	c, err := begin(ctx, s, o, cb)
	if err != nil {
		return nil, err
	}
	if err := c.depend(ctx, o.Dependencies); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin is Start without the dependencies.
func begin(ctx context.Context, s *session.Service, o Options, cb session.Callbacks) (_ *Session, err error) {
	if err := o.Language.CheckDependencies(o.Dependencies); err != nil {
		return nil, err
	}
	keep := o.Create.Spec.Key != "" || o.Sandbox != nil
	if !keep {
		o.Create.Spec.Lifetime = runner.Attached
	}
	sb := o.Sandbox
	if sb == nil {
		if sb, err = s.Create(ctx, o.Create, cb); err != nil {
			return nil, err
		}
	}
	c := &Session{
		Sandbox: sb, Language: o.Language, service: s, options: o, keep: keep, turn: make(chan struct{}, 1),
		Created: time.Now(),
	}
	if c.kernel, err = start(ctx, sandbox{sb, s.CallerPath(), o.Env}, o); err != nil {
		c.discard()
		return nil, err
	}
	c.used = time.Now()
	go c.EndOf(c.kernel) // notices the end of a kernel that executes nothing
	return c, nil
}

// depend installs the dependencies of the options.
func (c *Session) depend(ctx context.Context, d []languages.Dependency) (err error) {
	if len(d) > 0 {
		c.Installed, err = c.Install(ctx, d)
	}
	return err
}

// Kernel returns the kernel, which Restart replaces. Requests that it gets directly do not wait for their turn.
func (c *Session) Kernel() *kernels.Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kernel
}

// Execute executes code after the executions that were asked for earlier. See [kernels.Kernel.Execute]. If the kernel
// ended, or had to be killed because it ignored an interrupt, the error is a [*Death], with the outputs so far.
func (c *Session) Execute(ctx context.Context, e kernels.Execution) (*kernels.Result, error) {
	done, err := c.waitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	k := c.Kernel()
	r, err := k.Execute(ctx, e)
	switch {
	case errors.Is(err, kernels.ErrStuck):
		return r, c.died(k, stuck())
	case errors.Is(err, kernels.ErrDead):
		return r, c.died(k, nil)
	case err == nil && c.Language.Displays() && r.Value == nil: // IRkernel shows a figure after all texts
		for i, b := range slices.Backward(r.Displays) {
			if textual(b) {
				r.Value, r.Displays = b, slices.Delete(r.Displays, i, i+1)
				break
			}
		}
	}
	return r, err
}

// textual reports whether plain text shows a value whole.
func textual(b kernels.Bundle) bool {
	_, marked := Plain(b)
	_, plain := b.Text(plainText)
	return marked || plain && len(b) == 1
}

// waitTurn waits for the earlier calls that need the kernel, and keeps the session busy until done is called. The error is
// a [*Death] if the kernel has ended.
func (c *Session) waitTurn(ctx context.Context) (done func(), err error) {
	release := c.Hold()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		release()
		return nil, context.Cause(ctx)
	}
	done = func() {
		<-c.turn
		release()
	}
	if d := c.Death(); d != nil {
		done()
		return nil, d
	}
	return done, nil
}

// Interrupt has the kernel stop what it executes, as Ctrl-C does.
func (c *Session) Interrupt() error { return c.Kernel().Interrupt() }

// Restart ends the kernel and starts a new one in the same sandbox, whose files remain. What the old kernel executes
// ends with a [*Death].
func (c *Session) Restart(ctx context.Context) error {
	defer c.Hold()()
	old := c.Kernel()
	c.died(old, restarted())
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.Kernel() != old { // another call has restarted it meanwhile
		return nil
	}
	k, err := start(ctx, sandbox{c.Sandbox, c.service.CallerPath(), c.options.Env}, c.options)
	if err != nil {
		return fmt.Errorf("restart kernel: %w", err)
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.kernel, c.death = k, nil
	}
	c.mu.Unlock()
	if closed {
		k.Kill()
		return errClosed
	}
	go c.EndOf(k)
	return nil
}

var errClosed = errors.New("the session has ended")

// Hold marks the session as busy until release is called: a Store ends no busy session. Execute and Install do so
// themselves; a frontend does it for commands and copies in the sandbox.
func (c *Session) Hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.users--
		c.used = time.Now()
	})
}

// Idle returns since when the session is not busy. idle is false if it is busy.
func (c *Session) Idle() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.users == 0
}

// adopt makes a session that was started ahead the session of a request.
func (c *Session) adopt(o Options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options, c.Created, c.used = o, time.Now(), time.Now()
}

// retire ends a session that is not busy, and reports whether it was that. The caller must then call Close.
func (c *Session) retire(why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 0 {
		return false
	}
	if c.death == nil {
		c.death = &Death{"the session has ended: " + why, "make a new session"}
	}
	return true
}

// Close ends the kernel. It removes the sandbox, unless that has a key. It may be called twice.
func (c *Session) Close() {
	c.mu.Lock()
	k, closed := c.kernel, c.closed
	c.closed = true
	if c.death == nil {
		c.death = stopped()
	}
	c.mu.Unlock()
	if closed {
		return
	}
	c.discard() // which ends the kernel
	k.Kill()
}

// removeTime bounds the removal of a sandbox.
const removeTime = runner.RemoveTime

// discard removes the sandbox, and its output directory if that is empty and was made for it.
func (c *Session) discard() {
	if c.keep {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	if c.service.Remove(ctx, c.Sandbox.ID) != nil && c.options.Create.Out == "" { // the sandbox may have ended by itself
		syscall.Rmdir(c.Sandbox.Out)
	}
}
