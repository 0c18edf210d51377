package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Sandboxes are the caller's persistent sandboxes.
type Sandboxes struct{ *remote }

// Sandboxes returns the caller's persistent sandboxes.
func (c *Client) Sandboxes() Sandboxes { return Sandboxes{c.remote} }

// at returns a path of a sandbox.
func at(sandbox, path string) string { return "/sandboxes/" + segment(sandbox) + path }

// segment escapes a name so that it is one segment of a path. What could be none is a name that nothing has.
func segment(name string) string {
	if name == "" || name == "." || name == ".." {
		return "%00"
	}
	return url.PathEscape(name)
}

// Create makes a sandbox.
func (s Sandboxes) Create(ctx context.Context, q CreateRequest) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "create sandbox", http.MethodPost, "/sandboxes", nil, q)
}

// List returns a page of sandboxes, the newest first.
func (s Sandboxes) List(ctx context.Context, f SandboxFilter) (*SandboxPage, error) {
	q := query{"state": f.State, "name": f.Name, "namespace": f.Namespace, "cursor": f.Cursor}
	if f.Oldest {
		q["order"] = "oldest"
	}
	if f.Limit != 0 {
		q["limit"] = strconv.Itoa(f.Limit)
	}
	return got[SandboxPage](s.remote, ctx, "list sandboxes", http.MethodGet, "/sandboxes", q, nil)
}

// All yields the sandboxes of all pages: one that exists from the first request to the last one exactly once.
func (s Sandboxes) All(ctx context.Context, f SandboxFilter) iter.Seq2[Sandbox, error] {
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

// Get describes a sandbox. One that has ended is not found.
func (s Sandboxes) Get(ctx context.Context, sandbox string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "get sandbox", http.MethodGet, at(sandbox, ""), nil, nil)
}

// Remove removes a sandbox with its files, and ends its processes.
func (s Sandboxes) Remove(ctx context.Context, sandbox string) error {
	return s.call(ctx, "remove sandbox", http.MethodDelete, at(sandbox, ""), nil, nil, nil)
}

// RemoveGroup removes all sandboxes of a group, at the same time. Without any it returns ErrNotFound.
func (s Sandboxes) RemoveGroup(ctx context.Context, group string) error {
	return s.call(ctx, "remove group", http.MethodDelete, "/groups/"+url.PathEscape(group), nil, nil, nil)
}

// change performs a verb without a body.
func (s Sandboxes) change(ctx context.Context, verb, sandbox string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, verb+" sandbox", http.MethodPost, at(sandbox, "/"+verb), nil, nil)
}

// Start starts the processes of a stopped sandbox.
func (s Sandboxes) Start(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "start", sandbox)
}

// Stop ends the processes and keeps the files.
func (s Sandboxes) Stop(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "stop", sandbox)
}

// Pause stops the processes and keeps them in memory. Resume, or the next command, continues them.
func (s Sandboxes) Pause(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "pause", sandbox)
}

// Resume continues the processes of a paused sandbox.
func (s Sandboxes) Resume(ctx context.Context, sandbox string) (*Sandbox, error) {
	return s.change(ctx, "resume", sandbox)
}

// Fork makes a sandbox with the files of another one or of a snapshot, and none of its processes. An empty name: a new
// one.
func (s Sandboxes) Fork(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "fork sandbox", http.MethodPost, at(sandbox, "/fork"), nil, ForkRequest{Name: name})
}

// Snapshot keeps the files as they are now. It is a sandbox in state "snapshot", for Fork.
func (s Sandboxes) Snapshot(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "snapshot sandbox", http.MethodPost, at(sandbox, "/snapshot"), nil, ForkRequest{Name: name})
}

// SetLimits changes limits of a running sandbox, at most to the operator's. A zero leaves a limit as it is, and Disk
// cannot change.
func (s Sandboxes) SetLimits(ctx context.Context, sandbox string, l Limits) (*Sandbox, error) {
	return got[Sandbox](s.remote, ctx, "limit sandbox", http.MethodPatch, at(sandbox, "/limits"), nil, l)
}

// Usage measures a sandbox: processor seconds, and bytes of memory. It is zero for one without processes.
func (s Sandboxes) Usage(ctx context.Context, sandbox string) (*Usage, error) {
	return got[Usage](s.remote, ctx, "measure sandbox", http.MethodGet, at(sandbox, "/usage"), nil, nil)
}

// Usages returns what running sandboxes used, as the server measured it in the last minutes: all samples of one sandbox,
// or the newest of each if sandbox is empty.
func (s Sandboxes) Usages(ctx context.Context, sandbox string) ([]SandboxUsage, error) {
	p, err := got[Page[SandboxUsage]](s.remote, ctx, "list usage", http.MethodGet, "/usage", query{"sandbox": sandbox}, nil)
	if err != nil {
		return nil, err
	}
	return p.Items, nil
}

// Receipt returns what the kernel enforces for a sandbox, also for one that ended recently.
func (s Sandboxes) Receipt(ctx context.Context, sandbox string) (*Receipt, error) {
	return got[Receipt](s.remote, ctx, "get receipt", http.MethodGet, at(sandbox, "/receipt"), nil, nil)
}

// Processes lists the processes in a sandbox. A stopped one has none.
func (s Sandboxes) Processes(ctx context.Context, sandbox string) ([]Process, error) {
	return listed[Process](s.remote, ctx, "list processes", at(sandbox, "/processes"))
}

// Browse calls a tool of the browser in a sandbox, such as browser_navigate, and starts the browser first if none runs. The image needs
// playwright-mcp, as the image browser has.
func (s Sandboxes) Browse(ctx context.Context, sandbox, tool string, arguments map[string]any) (*BrowserResult, error) {
	return got[BrowserResult](s.remote, ctx, "browse", http.MethodPost, at(sandbox, "/browser/"+url.PathEscape(tool)), nil, BrowseRequest{arguments})
}

// Changes lists the files that differ from the sandbox's image.
func (s Sandboxes) Changes(ctx context.Context, sandbox string) (*Changes, error) {
	return got[Changes](s.remote, ctx, "list changes", http.MethodGet, at(sandbox, "/changes"), nil, nil)
}

// Ports lists the ports that the server's machine can reach.
func (s Sandboxes) Ports(ctx context.Context, sandbox string) ([]Port, error) {
	return listed[Port](s.remote, ctx, "list ports", at(sandbox, "/ports"))
}

// Publish makes a port reachable, on an address that the server chooses, until Unpublish or the end of the server.
func (s Sandboxes) Publish(ctx context.Context, sandbox string, port uint16) (*Port, error) {
	return got[Port](s.remote, ctx, "publish port", http.MethodPost, at(sandbox, "/ports"), nil, PortRequest{To: port})
}

// Unpublish ends what Publish began.
func (s Sandboxes) Unpublish(ctx context.Context, sandbox string, port uint16) error {
	return s.call(ctx, "unpublish port", http.MethodDelete, at(sandbox, "/ports/"+strconv.Itoa(int(port))), nil, nil, nil)
}
