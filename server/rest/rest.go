// Package rest serves /v1, demesne's own HTTP API, over sandboxes of package server. Its requests and answers are the types
// of package client, of which huma makes the OpenAPI document at /v1/openapi.json.
//
//	rest.go       the server, its routes and their limits; backend.go: what it needs beside package server
//	errors.go     the one shape of errors
//	run.go        run and exec, collected; stream.go: as server-sent events; terminal.go: on a terminal, by WebSocket
//	sandboxes.go  create, list, get, remove; life.go: start, stop, pause, fork, snapshot, limits, usage, receipt
//	files.go      files and grep, in the envelope {code, message, data}
//	browser.go    tools of a browser
//	egress.go     rules and the live log; questions.go: connections that wait for an answer
//	images.go, builds.go, ports.go
//	host.go       guarded commands and files of the host
//	docs.go       the OpenAPI document, and a page that shows it; describe.go: its descriptions, examples and errors
//
// A handler finds its sandbox by [Server.find], which knows the caller. Everything that a sandbox sends is untrusted, and
// passed on as data. No answer has a path of the host.
package rest

import (
	"cmp"
	"context"
	"io"
	"log"
	"net/http"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
	"demesne/server"
	"demesne/server/hostcmd"
)

// Options configures a Server.
type Options struct {
	Of func(context.Context) (Service, error) // what the caller of a request uses
	// Questions makes ask answer for every sandbox whose network asks. It is called once.
	Questions func(ask func(runner.Question) (allow, answered bool))
	Jobs      Jobs // nil: there are no jobs and agents
	Version   string
	Queue     func(context.Context) client.Queue // what runs and waits; nil: no route
	Log       *log.Logger
	Host      *hostcmd.Guard // nil: there are no routes for the host
	// Browse calls a tool of the browser in a sandbox of the caller. nil: there is no route.
	Browse  func(ctx context.Context, sandbox, tool string, args map[string]any) (*client.BrowserResult, error)
	Beside  *http.ServeMux                                  // has routes below /v1 that others serve; may be nil
	Listed  func([]runner.Info)                             // called with the sandboxes that a client is shown; may be nil
	Samples func(id string) []client.UsageSample            // what a sandbox used in the last minutes; nil: it is not known
	Stored  func(namespace string) map[string]client.Stored // what a namespace stores; nil: it is not known
}

// Server serves the API. Its methods may be called concurrently.
type Server struct {
	opts      Options
	mux       *http.ServeMux
	api       huma.API
	questions questions
	published published
	building  atomic.Int64 // builds that wait or run
}

// bodyTime is how long a client may pause while it sends its request.
const bodyTime = 30 * time.Second

// ServeHTTP serves a request whose caller is known: see [server.CallerOf].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = &body{ReadCloser: r.Body, c: http.NewResponseController(w)}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if _, known := server.CallerOf(r.Context()).Frontend(); known {
		of, err := s.opts.Of(r.Context())
		if err != nil {
			write(w, s.shown(r.Context(), err))
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), serviceKey{}, of))
	}
	s.mux.ServeHTTP(w, r)
}

type serviceKey struct{}

// service returns the service of a request's caller. Only routes without one are served to others.
func (s *Server) service(ctx context.Context) Service { return ctx.Value(serviceKey{}).(Service) }

// body bounds the time between parts of a request. A deadline must not remain once the request was read: net/http would
// end the answer at it.
type body struct {
	io.ReadCloser
	c *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	b.c.SetReadDeadline(time.Now().Add(bodyTime))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

// anything is an answer with a body. Of huma's generic code, one type for all answers adds 0.4 MB less to the program.
type anything struct{ Body any }

// answers registers a route. f returns the body of the answer.
func answers[I, A any](s *Server, op huma.Operation, f func(context.Context, *I) (A, error)) {
	status := strconv.Itoa(cmp.Or(op.DefaultStatus, http.StatusOK))
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[A](), true, op.OperationID+"Response")
	op.Responses = map[string]*huma.Response{status: {Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*anything, error) {
		a, err := f(ctx, in)
		if err != nil {
			return nil, failed(err)
		}
		return &anything{a}, nil
	})
}

// Named is the part of a request that names a sandbox.
type Named struct {
	ID string `path:"id" maxLength:"128" doc:"Id or name of the sandbox"`
}

func (n Named) sandbox() string { return n.ID }

// inSandbox is a request about a sandbox with a body.
type inSandbox[T any] struct {
	Named
	Body T
}

// within registers a route about a sandbox. f gets one that the caller may use.
func within[I, A any, P interface {
	*I
	sandbox() string
}](s *Server, op huma.Operation, f func(context.Context, *runner.Info, *I) (A, error)) {
	answers(s, op, func(ctx context.Context, in *I) (a A, err error) {
		info, err := s.find(ctx, P(in).sandbox())
		if err != nil {
			return a, err
		}
		return f(ctx, info, in)
	})
}

// page returns a page of all items, which is an empty list and never null.
func page[T any](items []T) client.Page[T] { return client.Page[T]{Items: append([]T{}, items...)} }

// operation returns the description of a route.
func operation(id, method, path, tag, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: "/v1" + path, Tags: []string{tag}, Summary: summary,
		MaxBodyBytes: server.MaxBody, BodyReadTimeout: -1,
	}
}
