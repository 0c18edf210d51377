package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"demesne/cmd/internal/cli"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
)

// Environment variables that bound what one user may have at once, and one copy into a sandbox, out of it, or between
// sandboxes. They are the same for all programs. They protect against mistakes, such as a loop, and are no security
// boundary: a user can set other ones.
const (
	varSandboxes = "DEMESNE_MAX_SANDBOXES"
	varJobs      = "DEMESNE_MAX_JOBS"
	varOutputs   = "DEMESNE_MAX_OUTPUTS"
	varCopyBytes = "DEMESNE_MAX_COPY_BYTES"
	varCopyFiles = "DEMESNE_MAX_COPY_FILES"
)

// The default bounds of persistent sandboxes, and of the output directories that an MCP server keeps.
const mostSandboxes, mostOutputs = 64, 1000

// ErrFull means that a user has more persistent sandboxes than are allowed.
var ErrFull = errors.New("too many sandboxes")

// quota reads the bounds of the user from the environment.
type quota struct {
	getenv func(string) string
	own    int // see Options.MostSandboxes
}

// Check checks the variables. Without it a wrong one is reported by the first call that reads it.
func (s *Service) Check() error { return s.quota.check() }

func (q quota) check() error {
	for _, bound := range []func() (int, error){q.sandboxes, q.outputs, func() (int, error) { return q.jobs(1) }} {
		if _, err := bound(); err != nil {
			return err
		}
	}
	_, err := q.copies()
	return err
}

func (q quota) sandboxes() (int, error)        { return q.number(varSandboxes, mostSandboxes) }
func (q quota) outputs() (int, error)          { return q.number(varOutputs, mostOutputs) }
func (q quota) jobs(fallback int) (int, error) { return q.number(varJobs, fallback) }

// Jobs opens the user's background jobs.
func (s *Service) Jobs() (*jobs.Store, error) {
	dir, err := jobs.DefaultDir()
	if err != nil {
		return nil, err
	}
	store, err := jobs.Open(dir)
	if err == nil {
		store.Frontend = s.opts.Runner.Frontend
		store.Slots, err = s.quota.jobs(store.Slots)
	}
	return store, err
}

// admit removes a new sandbox if the user now has more persistent sandboxes than allowed. It counts after creation,
// so that two concurrent calls cannot both take the last slot.
func (q quota) admit(ctx context.Context, c *connection, id string) error {
	most, err := q.sandboxes()
	n := 0
	if err == nil {
		err = c.with(ctx, func(e Engine) (err error) { n, err = e.Count(ctx); return err })
	}
	if err == nil && n > most {
		err = cli.Hinted(fmt.Errorf("create sandbox: %w (%d)", ErrFull, most), "%s",
			"demesne ls lists sandboxes, and demesne rm ID removes one; $"+varSandboxes+" sets the maximum")
	}
	if err == nil && q.own > 0 {
		err = q.admitOwn(ctx, c)
	}
	if err != nil {
		c.remove(id)
	}
	return err
}

// admitOwn checks the bound of the Service's frontend.
func (q quota) admitOwn(ctx context.Context, c *connection) error {
	n := 0
	err := c.with(ctx, func(e Engine) error {
		all, err := e.List(ctx)
		for _, i := range all {
			if n++; i.Spec.Lifetime != runner.Persistent || i.State == runner.Snapshot || i.State == runner.Unreadable || i.State == runner.Ended {
				n--
			}
		}
		return err
	})
	if err == nil && n > q.own {
		err = fmt.Errorf("create sandbox: %w (%d)", ErrFull, q.own)
	}
	return err
}

func (q quota) number(variable string, fallback int) (int, error) {
	v := q.getenv(variable)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s %q: not a number of at least 1", variable, v)
	}
	return n, nil
}

// copies returns the limits of one copy; a zero field means tarball's default.
func (q quota) copies() (l tarball.Limits, err error) {
	if v := q.getenv(varCopyBytes); v != "" {
		if err := cli.Bytes(&l.Bytes)(v); err != nil {
			return l, fmt.Errorf("%s %q: %w", varCopyBytes, v, err)
		}
	}
	l.Entries, err = q.number(varCopyFiles, 0)
	return l, err
}

// withCopyHint names the variable of the limit that a copy exceeded.
func withCopyHint(err error) error {
	var e *tarball.LimitError
	switch {
	case !errors.As(err, &e):
	case e.Of == tarball.OfBytes:
		return cli.Hinted(err, "%s", "$"+varCopyBytes+" sets the maximum of bytes in one copy")
	case e.Of == tarball.OfEntries:
		return cli.Hinted(err, "%s", "$"+varCopyFiles+" sets the maximum of files and directories in one copy")
	}
	return err
}
