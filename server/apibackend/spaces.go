package apibackend

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"demesne/client"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/server"
	"demesne/server/backend"
	"demesne/server/rest"
)

// Spaces has a Backend for each namespace, with the sandboxes and bounds of that namespace. As a [backend.Backend] it does
// what its caller asks in the caller's own namespace: see [server.CallerOf]. Without a caller every call fails.
type Spaces struct {
	options func(namespace string) Options

	mu  sync.Mutex
	all map[string]*Backend
	ask func(runner.Question) (allow, answered bool) // see Questions
}

// spacesMost bounds the namespaces that a server knows at once: each has a connection to the runner.
const spacesMost = 1000

// NewSpaces returns the Backends with those options. The caller closes them.
func NewSpaces(options func(namespace string) Options) *Spaces {
	return &Spaces{options: options, all: map[string]*Backend{}}
}

// Close closes all connections to the runner.
func (s *Spaces) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.all {
		b.Close()
	}
}

// Of returns the Backend of a namespace; "" is the operator's, which has all sandboxes.
func (s *Spaces) Of(namespace string) (*Backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.all[namespace]; b != nil {
		return b, nil
	}
	if namespace != "" && !runner.IsNamespace(namespace) {
		return nil, fmt.Errorf("%w: namespace %q", backend.ErrInvalid, namespace)
	}
	if len(s.all) >= spacesMost {
		return nil, fmt.Errorf("%w: more than %d namespaces", backend.ErrBusy, spacesMost)
	}
	o := s.options(namespace)
	o.Namespace = namespace
	b, err := New(o)
	if err != nil {
		return nil, err
	}
	if s.ask != nil {
		b.Questions(s.ask)
	}
	s.all[namespace] = b
	return b, nil
}

// of returns the Backend of a request's caller.
func (s *Spaces) of(ctx context.Context) (*Backend, error) {
	c := server.CallerOf(ctx)
	if _, ok := c.Frontend(); !ok {
		return nil, server.ErrUnauthorized
	}
	return s.Of(c.Namespace)
}

// do calls f with the Backend of the caller.
func (s *Spaces) do(ctx context.Context, f func(*Backend) error) error {
	b, err := s.of(ctx)
	if err != nil {
		return err
	}
	return f(b)
}

// with returns what f returns, with the Backend of the caller.
func with[T any](ctx context.Context, s *Spaces, f func(*Backend) (T, error)) (result T, err error) {
	b, err := s.of(ctx)
	if err != nil {
		return result, err
	}
	return f(b)
}

func (s *Spaces) Create(ctx context.Context, c backend.Create) (backend.Sandbox, error) {
	return with(ctx, s, func(b *Backend) (backend.Sandbox, error) { return b.Create(ctx, c) })
}

func (s *Spaces) Grants(ctx context.Context, l runner.Limits, timeout time.Duration) backend.Granted {
	g, _ := with(ctx, s, func(b *Backend) (backend.Granted, error) { return b.Grants(ctx, l, timeout), nil })
	return g
}

func (s *Spaces) Open(ctx context.Context, name string) (backend.Sandbox, error) {
	return with(ctx, s, func(b *Backend) (backend.Sandbox, error) { return b.Open(ctx, name) })
}

func (s *Spaces) List(ctx context.Context) ([]runner.Info, error) {
	return with(ctx, s, func(b *Backend) ([]runner.Info, error) { return b.List(ctx) })
}

func (s *Spaces) Remove(ctx context.Context, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Remove(ctx, name) })
}

func (s *Spaces) Pause(ctx context.Context, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Pause(ctx, name) })
}

func (s *Spaces) Stop(ctx context.Context, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Stop(ctx, name) })
}

func (s *Spaces) Fork(ctx context.Context, from, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Fork(ctx, from, name) })
}

func (s *Spaces) Snapshot(ctx context.Context, from, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Snapshot(ctx, from, name) })
}

func (s *Spaces) Reach(ctx context.Context, name string, n backend.Network) error {
	return s.do(ctx, func(b *Backend) error { return b.Reach(ctx, name, n) })
}

func (s *Spaces) Usage(ctx context.Context, name string) (runner.Usage, error) {
	return with(ctx, s, func(b *Backend) (runner.Usage, error) { return b.Usage(ctx, name) })
}

func (s *Spaces) HasImage(ctx context.Context, name string) bool {
	return s.do(ctx, func(b *Backend) error {
		if !b.HasImage(ctx, name) {
			return backend.ErrNotFound
		}
		return nil
	}) == nil
}

func (s *Spaces) Build(ctx context.Context, o backend.Build, log io.Writer) error {
	return s.do(ctx, func(b *Backend) error { return b.Build(ctx, o, log) })
}

func (s *Spaces) Blobs(ctx context.Context, name string) (map[string]int64, error) {
	return with(ctx, s, func(b *Backend) (map[string]int64, error) { return b.Blobs(ctx, name) })
}

func (s *Spaces) Discard(ctx context.Context, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.Discard(ctx, name) })
}

func (s *Spaces) Inspect(ctx context.Context, name string) (*runner.Info, error) {
	return with(ctx, s, func(b *Backend) (*runner.Info, error) { return b.Inspect(ctx, name) })
}

func (s *Spaces) Run(ctx context.Context, c backend.Create, cmd rest.Command) (*rest.Result, error) {
	return with(ctx, s, func(b *Backend) (*rest.Result, error) { return b.Run(ctx, c, cmd) })
}

func (s *Spaces) Exec(ctx context.Context, name string, cmd rest.Command) (*rest.Result, error) {
	return with(ctx, s, func(b *Backend) (*rest.Result, error) { return b.Exec(ctx, name, cmd) })
}

func (s *Spaces) Limit(ctx context.Context, name string, l runner.Limits) error {
	return s.do(ctx, func(b *Backend) error { return b.Limit(ctx, name, l) })
}

func (s *Spaces) Files(ctx context.Context, name string, r files.Request) (*files.Answer, error) {
	return with(ctx, s, func(b *Backend) (*files.Answer, error) { return b.Files(ctx, name, r) })
}

func (s *Spaces) Copy(ctx context.Context, name, from, to string) error {
	return s.do(ctx, func(b *Backend) error { return b.Copy(ctx, name, from, to) })
}

func (s *Spaces) Diff(ctx context.Context, name string) (*runner.Diff, error) {
	return with(ctx, s, func(b *Backend) (*runner.Diff, error) { return b.Diff(ctx, name) })
}

func (s *Spaces) Rules(ctx context.Context, name string, allow, deny []string) error {
	return s.do(ctx, func(b *Backend) error { return b.Rules(ctx, name, allow, deny) })
}

func (s *Spaces) MayDecide(ctx context.Context) error {
	return s.do(ctx, func(b *Backend) error { return b.MayDecide(ctx) })
}

func (s *Spaces) ListImages(ctx context.Context) ([]client.Image, error) {
	return with(ctx, s, func(b *Backend) ([]client.Image, error) { return b.ListImages(ctx) })
}

func (s *Spaces) Pull(ctx context.Context, name string, progress func(string)) (*client.Image, error) {
	return with(ctx, s, func(b *Backend) (*client.Image, error) { return b.Pull(ctx, name, progress) })
}

func (s *Spaces) RemoveImage(ctx context.Context, name string) error {
	return s.do(ctx, func(b *Backend) error { return b.RemoveImage(ctx, name) })
}

// Questions makes ask answer for the sandboxes of all namespaces.
func (s *Spaces) Questions(ask func(runner.Question) (allow, answered bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask = ask
	for _, b := range s.all {
		b.Questions(ask)
	}
}

var _ rest.Backend = (*Spaces)(nil)
