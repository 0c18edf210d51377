// Package kernel has the kernels of the HTTP API: package kernels/code's, without the values of secrets.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/languages"
	"demesne/proxy/redact"
	"demesne/server"
	"demesne/server/apibackend/kinds"
	"demesne/session"
)

// Start starts a kernel in a sandbox. It runs as the sandbox's own user. most bounds the time of an execution.
func Start(ctx context.Context, service *session.Service, sandbox *session.Sandbox, o server.KernelOptions, most time.Duration) (server.Kernel, error) {
	language, ok := languages.Find(o.Language)
	if !ok {
		return nil, fmt.Errorf("%w: language %q: unknown", session.ErrInvalid, o.Language)
	}
	c, err := code.Start(ctx, service, code.Options{Sandbox: sandbox, Language: language, Dir: o.Dir, Env: o.Env, PreferOwn: true}, session.Callbacks{})
	if err != nil {
		return nil, kinds.Of(err)
	}
	k := &kernel{Session: c, hidden: func() *redact.Values { return service.Hidden(sandbox.ID) }, prelude: o.Prelude, most: most}
	if err := k.prepare(ctx); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// kernel is a [server.Kernel].
type kernel struct {
	*code.Session
	hidden  func() *redact.Values // which its output must not have
	prelude string
	most    time.Duration
	died    atomic.Bool // the caller knows that the process has ended
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
	if k.died.Swap(false) {
		if err := k.Restart(ctx); err != nil {
			return nil, err
		}
	}
	hidden := k.hidden()
	e := kernels.Execution{Code: text, Timeout: k.most, Silent: emit == nil}
	shown := code.NewHider(hidden, emit)
	if emit != nil {
		e.Emit = shown.Show
	}
	r, err := k.Session.Execute(ctx, e)
	if emit != nil {
		shown.Rest()
	}
	if _, ok := errors.AsType[*code.Death](err); ok {
		k.died.Store(true) // the next execution has a new process
	}
	if r == nil {
		return nil, err
	}
	done := &kernels.Result{Count: r.Count}
	if e := r.Error; e != nil {
		done.Error = &kernels.Error{Type: e.Type, Message: hidden.Text(e.Message), Traceback: []string{hidden.Text(strings.Join(e.Traceback, "\n"))}}
	}
	return done, err
}
