package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// errBehind means that the server dropped a client that was too slow.
var errBehind = errors.New("too slow for the events")

// Events yields what happens to the caller's sandboxes, until ctx ends or the loop is left. An error is the last thing
// that it yields.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return all(c.remote, ctx, "follow events", "/events", f.query("last"), false, func(e sent) (v Event, ignore bool, err error) {
		if e.name == "lost" {
			return v, false, errBehind
		}
		err = e.into(&v)
		return v, v.ID == 0, err
	})
}

// query returns the parameters of a request. last is the name of the field Last.
func (f EventFilter) query(last string) query {
	q := query{"type": f.Type, "sandbox": f.Sandbox, "namespace": f.Namespace}
	if f.After > 0 {
		q["after"] = strconv.FormatUint(f.After, 10)
	}
	if f.Last > 0 {
		q[last] = strconv.Itoa(f.Last)
	}
	if !f.Since.IsZero() {
		q["since"] = f.Since.UTC().Format(time.RFC3339Nano)
	}
	return q
}

// Audit is the log of what happened. Each entry has the digest of the one before it.
type Audit struct{ *remote }

// Audit returns the log of what happened.
func (c *Client) Audit() Audit { return Audit{c.remote} }

// List returns entries, the oldest first: the newest of those that f selects, or with f.After the first ones after it.
// f.Last is their number, at most 1000; 0: 100. Callers of a namespace get only its entries.
func (a Audit) List(ctx context.Context, f EventFilter) ([]AuditEntry, error) {
	all, err := got[AuditEntries](a.remote, ctx, "read audit log", http.MethodGet, "/audit", f.query("limit"), nil)
	if err != nil {
		return nil, err
	}
	return all.Entries, nil
}

// Verify checks the chain, as the operator. mark is empty, or ID:SHA256 of an entry from an earlier report: then it must
// still be there, which it is not in a log that was replaced as a whole.
func (a Audit) Verify(ctx context.Context, mark string) (*AuditReport, error) {
	return got[AuditReport](a.remote, ctx, "verify audit log", http.MethodGet, "/audit/verify", query{"mark": mark}, nil)
}
