package apibackend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"demesne/cmd/internal/code"
	"demesne/cmd/internal/session"
	"demesne/kernels"
	"demesne/kernels/languages"
	"demesne/server/backend"
)

// Kernel starts a kernel in the sandbox. It runs as the sandbox's own user.
func (s *sandbox) Kernel(ctx context.Context, o backend.KernelOptions) (backend.Kernel, error) {
	language, ok := languages.Find(o.Language)
	if !ok {
		return nil, fmt.Errorf("%w: language %q: unknown", backend.ErrInvalid, o.Language)
	}
	c, err := code.Start(ctx, s.backend.service, code.Options{Sandbox: s.Sandbox, Language: language, Dir: o.Dir, Env: o.Env}, session.Callbacks{})
	if err != nil {
		return nil, classified(err)
	}
	return &kernel{c, s}, nil
}

// kernel is a [backend.Kernel].
type kernel struct {
	*code.Session
	sandbox *sandbox
}

func (k *kernel) Execute(ctx context.Context, text string, emit func(backend.Output)) (*backend.Executed, error) {
	hidden := k.sandbox.hidden()
	shown := code.NewHider(hidden, func(o kernels.Output) {
		emit(backend.Output{Stdout: o.Stdout, Stderr: o.Stderr, Display: o.Display, Main: o.Value})
	})
	r, err := k.Session.Execute(ctx, kernels.Execution{Code: text, Timeout: k.sandbox.backend.bounds.MaxTimeout, Emit: shown.Show})
	shown.Rest()
	if r == nil {
		return nil, err
	}
	var dead *code.Death
	if errors.As(err, &dead) {
		k.revive() // the next execution finds a new kernel
	}
	done := &backend.Executed{Count: r.Count}
	if r.Error != nil {
		done.Name, done.Value, done.Traceback = r.Error.Type, hidden.Text(r.Error.Message), hidden.Text(strings.Join(r.Error.Traceback, "\n"))
	}
	return done, err
}

// revive starts a new kernel in the place of one that has ended.
func (k *kernel) revive() {
	go k.Session.Restart(context.Background())
}
