// Package session makes sandboxes and runs commands in them, for the programs that people and models use. Each of
// those is a frontend: it turns its own requests into options, and results into its own answers. The command line is
// one, the MCP server another.
//
//	s := session.New(session.Options{})
//	defer s.Close()
//	r, err := s.Run(ctx, session.CreateOptions{}, session.RunOptions{Command: runner.Command{Argv: argv}}, session.Callbacks{})
//
// The package owns everything between a frontend and package client:
//
//	service.go  options; engine.go, connection.go: the connection to the runner, renewed when it has ended
//	create.go   from options to a sandbox: rootimage.go finds the image, outputs.go makes /out, egress.go and keptrules.go get rules
//	docker.go   a Docker socket, whose server the client of the runner starts
//	run.go      a command from its start to its result; streams.go collects what it writes
//	ask.go      questions about names; copy.go: files; quota.go: bounds of one user, jobs
//	observe.go  reports events; auditlog.go: to a log; hidden.go: the credentials that no event has
//	prune.go    removes old outputs, logs and manifests; manifest.go: SHA-256 sums of outputs
//
// frontend_test.go is the smallest frontend, and shows how to write one.
//
// Every run without a directory of the caller has its own below the output root. The sandbox sees it as /out, and it
// outlives the run. Output that the package collects never passes through a file that the sandbox can reach. Pipes
// carry it to an unnamed file, which is linked into the output directory once the sandbox is gone.
//
// The runner and the job store hold the state of persistent sandboxes and jobs. A Service holds no state that must
// survive it. The package does not decide which caller may ask for what.
package session

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"demesne/images"
	imageevents "demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session/audit"
	"demesne/session/events"
)

// Options configures a Service. The zero value is for the command line.
type Options struct {
	OutputRoot string                                                // empty: client.OutputRoot
	Mark       bool                                                  // lets MCP and HTTP callers of the namespace read the output directories of runs
	Queues     string                                                // directory for RunOptions.Queue; empty: flock.QueueDir
	Getenv     func(string) string                                   // nil: os.Getenv
	Connect    func(context.Context, client.Options) (Engine, error) // nil: client.Connect
	Images     func() (*images.Client, error)                        // nil: [OpenImages]
	Runner     client.Options                                        // without Ask and Restart

	// MostSandboxes bounds the persistent sandboxes of the Service's frontend, in addition to the user's own bound; 0: no
	// bound.
	MostSandboxes int

	// Secrets returns the caller's credentials, for sandboxes that are made or restarted, and for commands in
	// existing ones. It is called when they are needed, perhaps more than once. nil: none.
	Secrets func() ([]runner.Secret, error)

	// SecretsOf returns the credentials of a sandbox that is about to be restarted, in addition to Secrets. nil: none.
	SecretsOf func(runner.Spec) []runner.Secret

	// Routes returns the routes of a sandbox that is about to be restarted. Their Token and Header are used, by Port. nil,
	// or a missing route: that route answers every request with 401.
	Routes func(runner.Spec) []runner.Route

	// Observe is called for each event: a sandbox or a command that began or ended, a question and its answer, a limit. Its
	// context has the values of the call that caused the event. It must not wait. nil: see [audit.Variable].
	Observe func(context.Context, events.Event)
}

// Callbacks are the functions by which a frontend takes part in a call. Each may be nil. Image, Note, Stage and Ask may be
// called on any goroutine, and concurrently. Made may take a [client.Sandbox.Listener]: connections of a command that runs
// already wait there.
type Callbacks struct {
	Image func(imageevents.Event) // progress of fetching or unpacking the image; nil: Progress gets it
	// Progress is called with one line about what the call does now. It may be called on any goroutine.
	Progress func(line string)
	Note     func(string)           // one line for a person, about configuration that is not understood
	Stage    func(...runner.Stage)  // how long each step took
	Ready    func()                 // called before anything is made that a killed frontend would leave behind
	Made     func(*Sandbox)         // the sandbox was made or opened; in Run and Exec its command may run already
	Began    func(last func() Tail) // a command with collected output began; last returns the end of its stdout so far
	// Moves is called when a copy begins; moved returns the number of complete files and the bytes so far.
	Moves func(moved func() (files, bytes int64))
	// Stream takes the output of code in a kernel, as it appears. It may be called on any goroutine.
	Stream func(output string)

	// Ask decides whether the sandbox may reach a name that no rule covers. It may take as long as Egress.Ask.
	// readable lists the host's paths that the sandbox can read, and therefore could send. Without an answer the name is
	// denied, and the next attempt asks again.
	Ask func(q runner.Question, readable []string) (allow, answered bool)
}

func (c *Callbacks) stage(st ...runner.Stage) {
	if c.Stage != nil {
		c.Stage(st...)
	}
}

// since reports a step that began then and ends now.
func (c *Callbacks) since(name string, began time.Time) {
	c.stage(runner.Stage{Name: name, MS: float64(time.Since(began).Microseconds()) / 1000})
}

func (c *Callbacks) made(b *Sandbox) {
	if c.Made != nil {
		c.Made(b)
	}
}

// Service makes sandboxes and runs commands in them, over one connection to the runner. It is safe for concurrent use.
type Service struct {
	opts    Options
	conn    connection
	outputs outputs
	quota   quota
	egress  egressResolver
	asks    asks
	watch   observer
	swap    sync.Mutex // held while a download replaces an earlier one
}

// New returns a Service. It connects when it has to.
func New(o Options) *Service {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Connect == nil {
		o.Connect = connect
	}
	if o.Images == nil {
		o.Images = OpenImages
	}
	s := &Service{opts: o, outputs: outputs{o.OutputRoot, o.Runner.Frontend, o.Mark}, quota: quota{o.Getenv}}
	s.egress = egressResolver{o.Getenv, o.Secrets, o.SecretsOf, o.Routes}
	o.Runner.Ask = func(q runner.Question) (allow, answered bool) { return s.question(q) }
	o.Runner.Restart = s.egress.restart
	s.watch.tell, s.watch.namespace = o.Observe, o.Runner.Frontend.Namespace()
	if dir := o.Getenv(audit.Variable); dir != "" && o.Observe == nil {
		s.watch.tell = auditTo(dir, o.Runner.Frontend)
	}
	s.conn.opts, s.conn.connect = o.Runner, func(ctx context.Context, o client.Options) (Engine, error) {
		o.Quota = s.quota.bounds(s.opts.MostSandboxes)
		e, err := s.opts.Connect(ctx, o)
		if err != nil {
			return nil, err
		}
		return s.watch.engine(e), nil
	}
	return s
}

// Close closes the connection, which ends the one-shot sandboxes made over it. Jobs and persistent sandboxes live on.
func (s *Service) Close() { s.conn.close() }

// OutputRoot returns the directory of the output directories, absolute and without symbolic links. It creates the
// directory.
func (s *Service) OutputRoot() (string, error) { return s.outputs.make() }

// Made reports whether the output directory of that name belongs to an MCP server of the Service's namespace.
func (s *Service) Made(name string) bool { return s.outputs.marked(name) }

// With calls f with a live connection. If the runner has ended, it calls f once more with a new one; so f must have
// had no effect if its error is ipc.CodeGone.
func (s *Service) With(ctx context.Context, f func(Engine) error) error { return s.conn.with(ctx, f) }

// Engine returns a live connection, which Close closes.
func (s *Service) Engine(ctx context.Context) (Engine, error) {
	e, _, err := s.conn.get(ctx, false)
	return e, err
}

// OwnPaths reports whether sandboxes on the host's files have /in, /out and /workspace, and mounts at any path. Without a
// mount namespace they have the paths of the host.
func (s *Service) OwnPaths(ctx context.Context) (own bool, err error) {
	err = s.conn.with(ctx, func(live Engine) error {
		own = live.Namespaces()
		return nil
	})
	return own, err
}

// DefaultImage returns the image of a sandbox whose caller named none.
func (s *Service) DefaultImage() (imageref.Ref, error) {
	name := imageref.Default(s.opts.Getenv)
	ref, err := ParseImage(name)
	if err != nil {
		err = text.Hinted(fmt.Errorf("image %q: %w", name, err), "from $DEMESNE_DEFAULT_IMAGE")
	}
	return ref, err
}
