package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/server"
	"demesne/server/hostcmd"
)

// hostRoutes adds the guarded commands of the host, if the operator turned them on.
func (s *Server) hostRoutes() {
	if s.opts.Host == nil {
		return
	}
	h := hostAPI{s.opts.Host}
	add := func(id, method, path, summary string) huma.Operation {
		return operation(id, method, "/host"+path, "Host", summary)
	}
	answers(s, add("host-exec", http.MethodPost, "/exec", "Run a command of the host"), h.exec)
	answers(s, add("host-access", http.MethodGet, "/access", "List what needs no person"), h.access)
	answers(s, add("host-pattern", http.MethodPost, "/access", "Ask for a pattern of commands"), h.pattern)
	for _, f := range []struct {
		kind    hostcmd.Kind
		summary string
	}{{hostcmd.Read, "Read a file of the host"}, {hostcmd.Write, "Write a file of the host"}, {hostcmd.List, "List a directory of the host"}, {hostcmd.Copy, "Copy a file or directory of the host into a sandbox"}} {
		answers(s, add("host-file-"+string(f.kind), http.MethodPost, "/files/"+string(f.kind), f.summary), func(ctx context.Context, in *hostFileInput) (client.HostOutcome, error) {
			return h.file(ctx, f.kind, &in.Body)
		})
	}
	answers(s, add("host-requests", http.MethodGet, "/requests", "List requests for the host"), h.requests)
	answers(s, add("host-result", http.MethodGet, "/requests/{id}", "Wait for a request of this caller, and get its result"), h.result)
	huma.Register(s.api, add("host-approve", http.MethodPost, "/requests/{id}/approve", "Approve a request, as the operator"), h.approve)
	huma.Register(s.api, add("host-refuse", http.MethodPost, "/requests/{id}/refuse", "Refuse a request or end a grant, as the operator"), h.refuse)
}

type (
	hostExecInput    struct{ Body client.HostExec }
	hostPatternInput struct{ Body client.HostPattern }
	hostFileInput    struct{ Body client.HostFile }
	hostListInput    struct {
		State string `query:"state" maxLength:"16" doc:"Such as pending"`
	}
	hostRefuseInput struct {
		ID string `path:"id" maxLength:"16" doc:"Id of the request"`
	}
	hostResultInput struct {
		ID          string  `path:"id" maxLength:"16" doc:"Id of the request"`
		WaitSeconds float64 `query:"wait_seconds" minimum:"0" maximum:"600" doc:"How long to wait for its end"`
	}
	hostApproveInput struct {
		ID   string `path:"id" maxLength:"16" doc:"Id of the request"`
		Body client.HostApproval
	}
)

// hostAPI has the handlers.
type hostAPI struct{ *hostcmd.Guard }

// hostCaller returns who asks. That it is the operator gives it no rights here: models have that token too.
func hostCaller(ctx context.Context) hostcmd.Caller {
	c := server.CallerOf(ctx)
	return hostcmd.Caller{Name: c.Name, Namespace: c.Namespace, Over: hostcmd.OverHTTP}
}

func patience(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (h hostAPI) do(ctx context.Context, a hostcmd.Ask, w client.HostWait) (client.HostOutcome, error) {
	a.Reason = w.Reason
	return hostOutcome(h.Do(ctx, hostCaller(ctx), a, patience(w.WaitSeconds)))
}

func (h hostAPI) exec(ctx context.Context, in *hostExecInput) (client.HostOutcome, error) {
	b := &in.Body
	a := hostcmd.Ask{Kind: hostcmd.Exec, Argv: b.Argv, Dir: b.Dir, Timeout: patience(min(b.TimeoutSeconds, 1<<20)), Output: b.MaxOutput}
	switch {
	case b.Command != "" && b.Argv != nil:
		return client.HostOutcome{}, refused("argv", "command is set too")
	case b.Command != "":
		var err error
		if a.Argv, err = hostcmd.Split(b.Command); err != nil {
			return client.HostOutcome{}, refused("command", err.Error())
		}
	}
	return h.do(ctx, a, b.HostWait)
}

func (h hostAPI) pattern(ctx context.Context, in *hostPatternInput) (client.HostOutcome, error) {
	return h.do(ctx, hostcmd.Ask{Kind: hostcmd.Access, Argv: in.Body.Pattern}, in.Body.HostWait)
}

func (h hostAPI) file(ctx context.Context, kind hostcmd.Kind, b *client.HostFile) (client.HostOutcome, error) {
	return h.do(ctx, hostcmd.Ask{Kind: kind, Path: b.Path, Offset: b.Offset, Limit: b.Limit, Content: b.Content, Sandbox: b.Sandbox, Dst: b.Dst}, b.HostWait)
}

func (h hostAPI) result(ctx context.Context, in *hostResultInput) (client.HostOutcome, error) {
	return hostOutcome(h.Collect(ctx, hostCaller(ctx), in.ID, patience(in.WaitSeconds)))
}

// hostOutcome returns an outcome as an answer has it.
func hostOutcome(o *hostcmd.Outcome, err error) (a client.HostOutcome, _ error) {
	switch {
	case errors.Is(err, hostcmd.ErrNone):
		return a, problem(http.StatusNotFound, err.Error())
	case err != nil:
		return a, problem(http.StatusForbidden, err.Error())
	}
	a = client.HostOutcome{ID: o.ID, State: string(o.State), Message: o.Why, Expires: whenever(o.Expires)}
	if o.State == hostcmd.Granted {
		a.Expires = whenever(o.Until)
	}
	if d := o.Result; d != nil {
		fillHost(&a, d)
	}
	return a, nil
}

func fillHost(a *client.HostOutcome, d *hostcmd.Result) {
	switch d.Kind {
	case hostcmd.Exec:
		a.ExitCode, a.TimedOut, a.Stdout, a.Stderr, a.StdoutBytes, a.StderrBytes = &d.Exit, d.TimedOut, &d.Stdout.Text, &d.Stderr.Text, d.Stdout.Bytes, d.Stderr.Bytes
	case hostcmd.Read:
		a.Content, a.Size, a.NextOffset = d.Content, &d.Size, d.Next
	case hostcmd.Write:
		a.Size, a.Created = &d.Size, d.Created
	case hostcmd.List:
		a.Entries, a.Truncated = append([]client.HostEntry{}, d.Entries...), d.Cut
	case hostcmd.Copy:
		a.Size, a.Skipped = &d.Size, d.Skipped
	}
}

func whenever(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (h hostAPI) access(ctx context.Context, _ *struct{}) (client.HostAccess, error) {
	a := h.Access(hostCaller(ctx))
	some := func(list []string) []string { return append([]string{}, list...) }
	return client.HostAccess{
		Enabled: a.On, Ask: a.Ask, Allow: some(a.Allow), Directories: some(a.Directories), Read: some(a.Read), Write: some(a.Write),
	}, nil
}

// hostRequests answers the operator with the requests of all callers, of other programs too, and others with their own.
func (h hostAPI) requests(ctx context.Context, in *hostListInput) (client.Page[client.HostRequest], error) {
	list := page[client.HostRequest](nil)
	add := func(r client.HostRequest) {
		if in.State == "" || in.State == r.State {
			list.Items = append(list.Items, r)
		}
	}
	if !server.CallerOf(ctx).Operator {
		for _, r := range h.Access(hostCaller(ctx)).Requests {
			add(client.HostRequest{ID: r.ID, State: string(r.State), Kind: string(r.Kind), Text: r.What, Asked: r.Asked, Expires: whenever(r.Expires)})
		}
		return list, nil
	}
	all, err := h.Store().List()
	if err != nil {
		return list, err
	}
	now := time.Now()
	for _, r := range all {
		q := &r.Request
		one := client.HostRequest{
			ID: q.ID, State: string(r.State), Kind: string(q.Kind), Text: q.Summary(), Detail: q.Describe(now), Digest: q.Digest(),
			Caller: q.Caller.Name, Namespace: q.Caller.Namespace, Reason: q.Reason, Problem: q.Problem, Asked: q.Filed, By: r.By,
		}
		if q.Lasting {
			one.Grant = h.Policy().Grant().Seconds()
		}
		switch r.State {
		case hostcmd.Pending:
			one.Expires = whenever(q.Expires)
		case hostcmd.Granted:
			one.Expires = whenever(r.Until)
		}
		add(one)
	}
	return list, nil
}

func (h hostAPI) approve(ctx context.Context, in *hostApproveInput) (*struct{}, error) {
	return h.decide(ctx, hostcmd.Decision{ID: in.ID, Digest: in.Body.Digest, Approve: true, For: patience(min(in.Body.ForSeconds, 1<<20))})
}

func (h hostAPI) refuse(ctx context.Context, in *hostRefuseInput) (*struct{}, error) {
	return h.decide(ctx, hostcmd.Decision{ID: in.ID})
}

// hostDecide records the operator's decision.
func (h hostAPI) decide(ctx context.Context, d hostcmd.Decision) (*struct{}, error) {
	c := server.CallerOf(ctx)
	switch {
	case !c.Operator:
		return nil, problem(http.StatusForbidden, "only the operator decides about requests")
	case d.Approve && !h.Policy().HTTPApproval():
		return nil, problem(http.StatusForbidden, "the policy allows no approval over HTTP: demesne approve")
	}
	d.By = c.Name + " over HTTP"
	_, err := h.Store().Decide(d)
	switch {
	case errors.Is(err, hostcmd.ErrNone):
		return nil, problem(http.StatusNotFound, err.Error())
	case err != nil:
		return nil, problem(http.StatusConflict, err.Error())
	}
	h.CheckDecisions()
	return nil, nil
}
