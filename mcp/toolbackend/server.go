// Package toolbackend implements the interfaces of package mcp over a session: it turns requests of models into
// options of sandboxes, and results into answers. The programs that offer MCP tools link it. The packages below it execute
// the tools, by subject.
//
//	server.go   from the environment's settings to an MCP server
//	config.go   what the environment allows models: paths, images, tool sets; texts.go: texts about tools
package toolbackend

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"demesne/mcp"
	"demesne/mcp/toolbackend/background"
	"demesne/mcp/toolbackend/codesessions"
	"demesne/mcp/toolbackend/imagebuild"
	"demesne/mcp/toolbackend/runtools"
	"demesne/mcp/toolbackend/sandboxes"
)

var _ mcp.Service = (*Backend)(nil)

// Open opens the session and the jobs that the settings configure.
func Open(o Options) (*Backend, error) {
	if o.Session.Getenv == nil {
		o.Session.Getenv = os.Getenv
	}
	o.Listed = o.Listed || o.Namespace != ""
	p, err := o.policy()
	if err != nil {
		return nil, err
	}
	of, err := sandboxes.Open(o.Session, p, o.Namespace)
	if err != nil {
		return nil, err
	}
	of.Queue = o.Queue
	all, err := background.Open(of)
	return &Backend{all, o}, err
}

// Attend does one background job for the callers that started it. The process that Start started does nothing else.
func Attend(ctx context.Context, id string) error {
	namespace, err := background.NamespaceOf(id)
	if err != nil {
		return err
	}
	f, err := Open(Options{Namespace: namespace})
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Do(ctx, id)
}

// AttendRun executes one run of the HTTP server, for the callers that started it.
func AttendRun(ctx context.Context, job string) error {
	return runtools.Attend(ctx, job, func(namespace string) (*sandboxes.Sandboxes, error) {
		f, err := Open(Options{Namespace: namespace})
		if err != nil {
			return nil, err
		}
		return f.Sandboxes, nil
	})
}

// Server returns an MCP server with the tools that the settings allow. tools is a list of tool sets; if it is empty, the
// settings' list applies. Each warning is one line to warn, after prefix. The caller calls done after its last answer.
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
	if opts.Models, err = f.OpenAgents(); err != nil {
		return nil, nil, err
	}
	opts.Model = f.Model
	if opts.Texts, err = toolTexts(f.options.setting(varTexts)); err != nil {
		return nil, nil, err
	}
	if opts.Web, err = f.Sandboxes.Web(f.options.setting(sandboxes.VarSearch)); err != nil {
		return nil, nil, err
	}
	sessions, err := codesessions.Open(f.Sandboxes, f.options.setting)
	if err != nil {
		return nil, nil, err
	}
	opts.Code, opts.Languages, opts.Browse = sessions, codesessions.Languages(), f.Browse
	if f.options.Namespace == "" {
		opts.Build = imagebuild.New(f.Sandboxes, opts.Image).Build
	}
	if f.options.Runs != nil {
		opts.Runs = &runtools.Tools{Sandboxes: f.Sandboxes, Store: f.options.Runs}
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

// MayResearch returns why a caller that no person can answer for may not start an agent with the whole network, or nil.
func (f *Backend) MayResearch() error {
	word, err := mcp.ParseResearch(f.options.setting(mcp.VarResearch))
	if err != nil {
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
