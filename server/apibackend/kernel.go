package apibackend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/languages"
	"demesne/server"
	"demesne/session"
)

// Kernel starts a kernel in the sandbox. It runs as the sandbox's own user.
func (s *sandbox) Kernel(ctx context.Context, o server.KernelOptions) (server.Kernel, error) {
	language, ok := languages.Find(o.Language)
	if !ok {
		return nil, fmt.Errorf("%w: language %q: unknown", session.ErrInvalid, o.Language)
	}
	c, err := code.Start(ctx, s.backend.service, code.Options{Sandbox: s.Sandbox, Language: language, Dir: o.Dir, Env: o.Env, PreferOwn: true}, session.Callbacks{})
	if err != nil {
		return nil, classified(err)
	}
	k := &kernel{c, s, o.Prelude}
	return k, k.prepare(ctx)
}

// kernel is a [server.Kernel].
type kernel struct {
	*code.Session
	sandbox *sandbox
	prelude string
}

// prepare executes the prelude in a new process. Code that fails there only lacks its effects.
func (k *kernel) prepare(ctx context.Context) error {
	if k.prelude == "" {
		return nil
	}
	_, err := k.Session.Execute(ctx, kernels.Execution{Code: k.prelude, Silent: true})
	return err
}

// Restart replaces the kernel's process.
func (k *kernel) Restart(ctx context.Context) error {
	if err := k.Session.Restart(ctx); err != nil {
		return err
	}
	return k.prepare(ctx)
}

func (k *kernel) Execute(ctx context.Context, text string, emit func(kernels.Output)) (*kernels.Result, error) {
	hidden := k.sandbox.hidden()
	e := kernels.Execution{Code: text, Timeout: k.sandbox.backend.policy.MaxTimeout, Silent: emit == nil}
	shown := code.NewHider(hidden, emit)
	if emit != nil {
		e.Emit = shown.Show
	}
	r, err := k.Session.Execute(ctx, e)
	if emit != nil {
		shown.Rest()
	}
	if r == nil {
		return nil, err
	}
	var dead *code.Death
	if errors.As(err, &dead) {
		k.revive() // the next execution finds a new kernel
	}
	done := &kernels.Result{Count: r.Count}
	if e := r.Error; e != nil {
		done.Error = &kernels.Error{Type: e.Type, Message: hidden.Text(e.Message), Traceback: []string{hidden.Text(strings.Join(e.Traceback, "\n"))}}
	}
	return done, err
}

// revive starts a new kernel in the place of one that has ended.
func (k *kernel) revive() {
	go k.Restart(context.Background())
}
