package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

type host struct{ *remote }

func (c *remote) Host() Host { return host{c} }

// ask sends a request for the host.
func (h host) ask(ctx context.Context, verb, path string, in any) (*HostOutcome, error) {
	return got[HostOutcome](h.remote, ctx, verb, http.MethodPost, "/host"+path, nil, in)
}

func (h host) Exec(ctx context.Context, q HostExec) (*HostOutcome, error) {
	return h.ask(ctx, "run host command", "/exec", q)
}

func (h host) Read(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "read host file", "/files/read", q)
}

func (h host) Write(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "write host file", "/files/write", q)
}

func (h host) List(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "list host files", "/files/list", q)
}

func (h host) Copy(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "copy host file", "/files/copy", q)
}

func (h host) RequestAccess(ctx context.Context, q HostPattern) (*HostOutcome, error) {
	return h.ask(ctx, "request host access", "/access", q)
}

func (h host) Access(ctx context.Context) (*HostAccess, error) {
	return got[HostAccess](h.remote, ctx, "list host access", http.MethodGet, "/host/access", nil, nil)
}

func (h host) Result(ctx context.Context, id string, most time.Duration) (*HostOutcome, error) {
	q := query{"wait_seconds": strconv.FormatFloat(most.Seconds(), 'f', -1, 64)}
	return got[HostOutcome](h.remote, ctx, "get host request", http.MethodGet, "/host/requests/"+segment(id), q, nil)
}

func (h host) Requests(ctx context.Context, state string) ([]HostRequest, error) {
	p, err := got[Page[HostRequest]](h.remote, ctx, "list host requests", http.MethodGet, "/host/requests", query{"state": state}, nil)
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

func (h host) Approve(ctx context.Context, id string, a HostApproval) error {
	return h.call(ctx, "approve host request", http.MethodPost, "/host/requests/"+segment(id)+"/approve", nil, a, nil)
}

func (h host) Refuse(ctx context.Context, id string) error {
	return h.call(ctx, "refuse host request", http.MethodPost, "/host/requests/"+segment(id)+"/refuse", nil, nil, nil)
}
