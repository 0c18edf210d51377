package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
)

// Environment variables that bound what one user may have at once, and one copy into a sandbox, out of it, or between
// sandboxes. They are the same for all programs. They protect against mistakes, such as a loop, and are not a security
// boundary: a user can set other ones.
const (
	varSandboxes = "DEMESNE_MAX_SANDBOXES"
	varJobs      = "DEMESNE_MAX_JOBS"
	varOutputs   = "DEMESNE_MAX_OUTPUTS"
	varCopyBytes = "DEMESNE_MAX_COPY_BYTES"
	varCopyFiles = "DEMESNE_MAX_COPY_FILES"
)

// mostOutputs is the default bound of the output directories that an MCP server keeps.
const mostOutputs = 1000

// quota reads the bounds of the user from the environment.
type quota struct {
	getenv func(string) string
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

// bounds returns the bounds for the runner; own is Options.MostSandboxes. reserve reports a wrong variable.
func (q quota) bounds(own int) (b runner.Quota) {
	if n, err := q.sandboxes(); err == nil && n != runner.MostSandboxes {
		b.User = n
	}
	b.Frontend = own
	return b
}

func (q quota) sandboxes() (int, error)        { return q.number(varSandboxes, runner.MostSandboxes) }
func (q quota) outputs() (int, error)          { return q.number(varOutputs, mostOutputs) }
func (q quota) jobs(fallback int) (int, error) { return q.number(varJobs, fallback) }

// Jobs opens the user's background jobs. The caller sets Place if it knows clusters.
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

// reserve takes a place for the persistent sandbox of st. st.undo gives it up.
func (q quota) reserve(ctx context.Context, c *connection, network bool, st *pending) error {
	if _, err := q.sandboxes(); err != nil {
		return err
	}
	if _, _, err := c.get(ctx, network); err != nil {
		return err
	}
	err := c.with(ctx, func(e Engine) (err error) {
		st.spec.Slot, st.unreserve, err = e.Reserve(context.WithoutCancel(ctx), st.spec.Key)
		return err
	})
	return cmp.Or(err, context.Cause(ctx))
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
		if l.Bytes, err = text.ParseBytes(v); err != nil {
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
		return text.Hinted(err, "%s", "$"+varCopyBytes+" sets the maximum of bytes in one copy")
	case e.Of == tarball.OfEntries:
		return text.Hinted(err, "%s", "$"+varCopyFiles+" sets the maximum of files and directories in one copy")
	}
	return err
}
