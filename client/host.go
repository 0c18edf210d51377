package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Host is the server's machine, if the operator turned host commands on. Otherwise, and for a Client of package inprocess,
// every method fails with ErrNotFound. The operator's policy lists what happens at once. The rest waits for a person:
// such an outcome has the state "pending", and Result returns what became of it.
type Host struct{ *remote }

// Host returns the server's machine.
func (c *Client) Host() Host { return Host{c.remote} }

// ask sends a request for the host.
func (h Host) ask(ctx context.Context, verb, path string, in any) (*HostOutcome, error) {
	return got[HostOutcome](h.remote, ctx, verb, http.MethodPost, "/host"+path, nil, in)
}

// Exec runs a command.
func (h Host) Exec(ctx context.Context, q HostExec) (*HostOutcome, error) {
	return h.ask(ctx, "run host command", "/exec", q)
}

// Read reads a file.
func (h Host) Read(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "read host file", "/files/read", q)
}

// Write writes a file.
func (h Host) Write(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "write host file", "/files/write", q)
}

// List lists a directory.
func (h Host) List(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "list host files", "/files/list", q)
}

// Copy copies a file into a sandbox.
func (h Host) Copy(ctx context.Context, q HostFile) (*HostOutcome, error) {
	return h.ask(ctx, "copy host file", "/files/copy", q)
}

// RequestAccess asks for more: all commands of a pattern, for a time.
func (h Host) RequestAccess(ctx context.Context, q HostPattern) (*HostOutcome, error) {
	return h.ask(ctx, "request host access", "/access", q)
}

// Access lists what needs no person.
func (h Host) Access(ctx context.Context) (*HostAccess, error) {
	return got[HostAccess](h.remote, ctx, "list host access", http.MethodGet, "/host/access", nil, nil)
}

// Result waits for the end of one of this caller's requests, at most 10 minutes.
func (h Host) Result(ctx context.Context, id string, timeout time.Duration) (*HostOutcome, error) {
	q := query{"wait_seconds": strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64)}
	return got[HostOutcome](h.remote, ctx, "get host request", http.MethodGet, "/host/requests/"+segment(id), q, nil)
}

// Requests lists requests in a state; empty: in any. The operator sees the requests of all callers.
func (h Host) Requests(ctx context.Context, state string) ([]HostRequest, error) {
	p, err := got[Page[HostRequest]](h.remote, ctx, "list host requests", http.MethodGet, "/host/requests", query{"state": state}, nil)
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

// Approve approves a request, as the operator. A program that approves without asking a person gives models the host.
func (h Host) Approve(ctx context.Context, id string, a HostApproval) error {
	return h.call(ctx, "approve host request", http.MethodPost, "/host/requests/"+segment(id)+"/approve", nil, a, nil)
}

// Refuse refuses a request, as the operator.
func (h Host) Refuse(ctx context.Context, id string) error {
	return h.call(ctx, "refuse host request", http.MethodPost, "/host/requests/"+segment(id)+"/refuse", nil, nil, nil)
}
