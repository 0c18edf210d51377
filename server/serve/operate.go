package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/server/operate"
	"demesne/server/runs"
	"demesne/session/audit"
)

// openOperate opens what records events, before anything can cause one.
func (p *program) openOperate(ctx context.Context) error {
	dir, err := fsutil.StateDir("audit")
	if err != nil {
		return fmt.Errorf("find audit log: %w", err)
	}
	os.Setenv(audit.Variable, dir) // for the programs of jobs and agents
	p.operate, err = operate.New(ctx, operate.Options{
		Dir: dir, Log: p.log, Version: cmdline.Version, Getenv: os.Getenv, Requests: p.options.LogRequests,
		Sandboxes: func(ctx context.Context) ([]runner.Info, error) { return p.mine.List(ctx) },
		Usage:     func(ctx context.Context, id string) (runner.Usage, error) { return p.mine.Measure(ctx, id) },
	}, &p.bus)
	return err
}

// addOperate adds what operators look at.
func (p *program) addOperate(ctx context.Context) error {
	p.operate.Routes(func(pattern string, h http.HandlerFunc) { p.mux.Handle(pattern, p.access.Handler(h)) })
	p.operate.Open(func(pattern string, h http.HandlerFunc) { p.mux.Handle(pattern, h) })
	go p.operate.Watch(ctx)
	go p.operate.Prune(ctx, p.options.KeepAudit, p.options.KeepOutputs, p.mine.Prune)
	return nil
}

// countRuns counts runs, also those that an earlier server started.
func (p *program) countRuns(all *runs.Store) error {
	all.Observe = func(_ runs.Request, e runs.Event) {
		switch e.Kind {
		case "run_started":
			p.operate.RunBegan()
		case "run_finished", "run_failed":
			p.operate.RunEnded(e.Kind == "run_failed", e.Data.Canceled)
		}
	}
	n, err := all.Resume()
	for range n {
		p.operate.RunBegan()
	}
	return err
}
