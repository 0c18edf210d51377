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

func (c *remote) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return all(c, ctx, "follow events", "/events", f.query("last"), false, func(e sent) (v Event, ignore bool, err error) {
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

type audit struct{ *remote }

func (c *remote) Audit() Audit { return audit{c} }

func (a audit) List(ctx context.Context, f EventFilter) ([]AuditEntry, error) {
	all, err := got[AuditEntries](a.remote, ctx, "read audit log", http.MethodGet, "/audit", f.query("limit"), nil)
	if err != nil {
		return nil, err
	}
	return all.Entries, nil
}

func (a audit) Verify(ctx context.Context, mark string) (*AuditReport, error) {
	return got[AuditReport](a.remote, ctx, "verify audit log", http.MethodGet, "/audit/verify", query{"mark": mark}, nil)
}
