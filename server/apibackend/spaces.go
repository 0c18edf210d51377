package apibackend

import (
	"context"
	"fmt"
	"sync"

	"demesne/runner"
	"demesne/server"
	"demesne/server/rest"
	"demesne/session"
)

// Spaces has a Backend for each namespace, with the sandboxes and bounds of that namespace. See [server.CallerOf].
type Spaces struct {
	options func(namespace string) Options

	mu  sync.Mutex
	all map[string]*Backend
	ask func(runner.Question) (allow, answered bool) // see Questions
}

// maxSpaces bounds the namespaces that a server knows at once: each has a connection to the runner.
const maxSpaces = 1000

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
		return nil, fmt.Errorf("%w: namespace %q", session.ErrInvalid, namespace)
	}
	if len(s.all) >= maxSpaces {
		return nil, fmt.Errorf("%w: more than %d namespaces", session.ErrBusy, maxSpaces)
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

// For returns the Backend of a request's caller.
func (s *Spaces) For(ctx context.Context) (rest.Service, error) {
	c := server.CallerOf(ctx)
	if _, ok := c.Frontend(); !ok {
		return nil, server.ErrUnauthorized
	}
	return s.Of(c.Namespace)
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
