package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

type sandboxes struct{ *remote }

func (c *remote) Sandboxes() Sandboxes { return sandboxes{c} }

// at returns a path of a sandbox.
func at(sandbox, path string) string { return "/sandboxes/" + segment(sandbox) + path }

// segment escapes a name so that it is one segment of a path. What could be none is a name that nothing has.
func segment(name string) string {
	if name == "" || name == "." || name == ".." {
		return "%00"
	}
	return url.PathEscape(name)
}

func (s sandboxes) Create(ctx context.Context, q CreateRequest) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "create sandbox", http.MethodPost, "/sandboxes", nil, q)
}

func (s sandboxes) List(ctx context.Context, f SandboxFilter) (*SandboxPage, error) {
	q := query{"state": f.State, "name": f.Name, "namespace": f.Namespace, "cursor": f.Cursor}
	if f.Oldest {
		q["order"] = "oldest"
	}
	if f.Limit != 0 {
		q["limit"] = strconv.Itoa(f.Limit)
	}
	return got[SandboxPage](s.remote, ctx, "list sandboxes", http.MethodGet, "/sandboxes", q, nil)
}

func (s sandboxes) All(ctx context.Context, f SandboxFilter) iter.Seq2[Sandbox, error] {
	return func(yield func(Sandbox, error) bool) {
		for {
			page, err := s.List(ctx, f)
			if err != nil {
				yield(Sandbox{}, err)
				return
			}
			for _, one := range page.Items {
				if !yield(one, nil) {
					return
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return
			}
		}
	}
}

func (s sandboxes) Get(ctx context.Context, sandbox string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "get sandbox", http.MethodGet, at(sandbox, ""), nil, nil)
}

func (s sandboxes) Remove(ctx context.Context, sandbox string) error {
	return s.call(ctx, "remove sandbox", http.MethodDelete, at(sandbox, ""), nil, nil, nil)
}

// change performs a verb without a body.
func (s sandboxes) change(ctx context.Context, verb, sandbox string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, verb+" sandbox", http.MethodPost, at(sandbox, "/"+verb), nil, nil)
}

func (s sandboxes) Start(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "start", sandbox)
}

func (s sandboxes) Stop(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "stop", sandbox)
}

func (s sandboxes) Pause(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "pause", sandbox)
}

func (s sandboxes) Resume(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "resume", sandbox)
}

func (s sandboxes) Fork(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "fork sandbox", http.MethodPost, at(sandbox, "/fork"), nil, ForkRequest{Name: name})
}

func (s sandboxes) Snapshot(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "snapshot sandbox", http.MethodPost, at(sandbox, "/snapshot"), nil, ForkRequest{Name: name})
}

func (s sandboxes) SetLimits(ctx context.Context, sandbox string, l Limits) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "limit sandbox", http.MethodPatch, at(sandbox, "/limits"), nil, l)
}

func (s sandboxes) Usage(ctx context.Context, sandbox string) (*Usage, error) {
	return got[Usage](s.remote, ctx, "measure sandbox", http.MethodGet, at(sandbox, "/usage"), nil, nil)
}

func (s sandboxes) Usages(ctx context.Context, sandbox string) ([]SandboxUsage, error) {
	p, err := got[Page[SandboxUsage]](s.remote, ctx, "list usage", http.MethodGet, "/usage", query{"sandbox": sandbox}, nil)
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

func (s sandboxes) Receipt(ctx context.Context, sandbox string) (*Receipt, error) {
	return got[Receipt](s.remote, ctx, "get receipt", http.MethodGet, at(sandbox, "/receipt"), nil, nil)
}

func (s sandboxes) Processes(ctx context.Context, sandbox string) ([]Process, error) {
	return listed[Process](s.remote, ctx, "list processes", at(sandbox, "/processes"))
}

func (s sandboxes) Changes(ctx context.Context, sandbox string) (*Changes, error) {
	return got[Changes](s.remote, ctx, "list changes", http.MethodGet, at(sandbox, "/changes"), nil, nil)
}

func (s sandboxes) Ports(ctx context.Context, sandbox string) ([]Port, error) {
	return listed[Port](s.remote, ctx, "list ports", at(sandbox, "/ports"))
}

func (s sandboxes) Publish(ctx context.Context, sandbox string, port uint16) (*Port, error) {
	return got[Port](s.remote, ctx, "publish port", http.MethodPost, at(sandbox, "/ports"), nil, PortRequest{To: port})
}

func (s sandboxes) Unpublish(ctx context.Context, sandbox string, port uint16) error {
	return s.call(ctx, "unpublish port", http.MethodDelete, at(sandbox, "/ports/"+strconv.Itoa(int(port))), nil, nil, nil)
}
