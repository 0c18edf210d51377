package toolbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"demesne/agents"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/jobs"
	"demesne/server"
	"demesne/server/hostcmd"
	"demesne/server/runs"
	"demesne/session"
	"demesne/session/operator"
)

// Options says for whom a Backend works. The zero value is that of a program with one client, which has the rights of its
// user.
type Options struct {
	Session session.Options // its Getenv has the operator's settings
	// Policy decides what the callers may ask; nil: one of the settings.
	Policy *operator.Policy
	// Namespace is that of the callers; empty: none. Callers with a namespace see only its sandboxes, jobs, outputs and
	// secrets.
	Namespace string
	// Queue bounds the commands that calls wait for; nil: they do not queue.
	Queue *server.Queue
	// Listed means that only listed directories can be mounted, and never the working directory. Namespace implies it.
	Listed bool
	// Runs are those of the tool set "runs"; nil: it is not offered.
	Runs *runs.Store
	// Host is the guard of host commands, with which the tool set host is offered. Nil: the settings decide, and they
	// offer it to no namespace.
	Host *hostcmd.Guard
}

// setting returns a setting of the operator.
func (o Options) setting(name string) string {
	if o.Namespace != "" && name == varPaths { // the operator listed them for the operator's own models
		return ""
	}
	return o.Session.Getenv(name)
}

// Open opens the session and the jobs that the settings configure.
func Open(o Options) (*Backend, error) {
	if o.Session.Getenv == nil {
		o.Session.Getenv = os.Getenv
	}
	o.Session.Runner.Frontend = runner.FrontendMCP.In(o.Namespace)
	if !o.Session.Runner.Frontend.Known() {
		return nil, fmt.Errorf("namespace %q: not lower-case letters, digits and dashes", o.Namespace)
	}
	o.Listed = o.Listed || o.Namespace != ""
	s := session.New(o.Session)
	if err := s.Check(); err != nil {
		return nil, err
	}
	store, err := s.Jobs()
	if err != nil {
		return nil, err
	}
	argv, err := client.FindFrontend("mcp") // calls Attend in a process of its own, so that a job outlives its starter
	if err != nil {
		return nil, err
	}
	p, err := o.policy()
	if err != nil {
		return nil, err
	}
	return &Backend{Service: s, options: o, policy: p, jobs: store, attend: append(argv, "job")}, nil
}

// Closed returns why no command may start now, or nil.
func (f *Backend) Closed() error { return f.options.Queue.Closed() }

// place waits until a command of the callers may run.
func (o Options) place(ctx context.Context) (done func(), err error) {
	return o.Queue.Acquire(server.WithCaller(ctx, server.InNamespace(o.Namespace)))
}

// Attend does one background job for the callers that started it. The process that Start started does nothing else.
func Attend(ctx context.Context, id string) error {
	dir, err := jobs.DefaultDir()
	if err != nil {
		return err
	}
	all, err := jobs.Open(dir)
	if err != nil {
		return err
	}
	j, err := all.Get(id)
	if err != nil {
		return err
	}
	f, err := Open(Options{Namespace: j.Frontend.Namespace()})
	if err != nil {
		return err
	}
	defer f.Close()
	return f.doJob(ctx, id)
}

// Server returns an MCP server with the tools that the settings allow. tools is a list of tool sets; if it is empty,
// that of the settings applies. Each warning is one line to warn, after prefix. The caller calls done after its last answer.
func (f *Backend) Server(ctx context.Context, tools string, warn io.Writer, prefix string) (s *mcp.Server, done func(), err error) {
	root, err := f.OutputRoot()
	if err != nil {
		return nil, nil, err
	}
	lines := prefixed{warn, prefix}
	opts, err := f.serverOptions(root, tools, lines)
	if err != nil {
		return nil, nil, err
	}
	if f.agents, err = agents.Open(agents.Options{}); err != nil {
		return nil, nil, err
	}
	opts.Models, opts.Model = f.agents.Models(), f.model
	if opts.Texts, err = toolTexts(f.options.setting(varTexts)); err != nil {
		return nil, nil, err
	}
	sessions, err := openCode(f, f.options.setting)
	if err != nil {
		return nil, nil, err
	}
	opts.Code, opts.Languages = sessions, languageNames()
	if f.options.Namespace == "" {
		b := imageBuilder{f.options, append(imageref.Entries(f.policy.AllowedImages), opts.Image)}
		opts.Build = b.build
	}
	if f.options.Runs != nil {
		opts.Runs = &runTools{f, f.options.Runs}
	}
	ended, err := f.offerHost(&opts)
	if err != nil {
		sessions.Close()
		return nil, nil, err
	}
	go f.Tidy() // ignore failures: the next start tries again
	go f.pruneOutputs(ctx)
	s = mcp.New(f, opts)
	warnTexts(s, opts.Texts, lines)
	return s, func() { sessions.Close(); ended() }, nil
}

// model checks that a tool can use a model in an image.
func (f *Backend) model(name, tool, image string) error {
	_, err := f.agents.In(image).Choose(tool, name)
	if errors.Is(err, agents.ErrNoProgram) {
		err = cmdline.Hinted(err, "install it so that PATH has it, or name an image that has it in the argument image")
	}
	return err
}

// CheckModel returns why an agent cannot run here, or nil.
func (f *Backend) CheckModel(r agents.Request) error {
	tool := "sandbox_agent"
	if r.Research {
		tool = "sandbox_research"
	}
	return f.model(r.Model, tool, r.Image)
}

// MayResearch returns why a caller that no person can answer for may not start an agent, or nil.
func (f *Backend) MayResearch(r agents.Request) error {
	word, err := mcp.ParseResearch(f.options.setting(mcp.VarResearch))
	if err != nil || !r.Research {
		return err
	}
	return word.Unasked()
}

// pruneEvery is the interval between checks for too many output directories.
const pruneEvery = 10 * time.Minute

// pruneOutputs removes surplus output directories until ctx ends. It ignores failures, because the next round
// tries again.
func (f *Backend) pruneOutputs(ctx context.Context) {
	for {
		f.PruneMost(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pruneEvery):
		}
	}
}

// prefixed writes lines after a prefix. Each Write is one line.
type prefixed struct {
	io.Writer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	if _, err := p.Writer.Write(append([]byte(p.prefix), bytes.Clone(b)...)); err != nil {
		return 0, err
	}
	return len(b), nil
}
