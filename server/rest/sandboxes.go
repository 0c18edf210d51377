package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

func schemaOf[T any](r huma.Registry) *huma.Schema {
	t := reflect.TypeFor[T]()
	return r.Schema(t, true, t.Name())
}

func (s *Server) sandboxRoutes() {
	create := operation("create-sandbox", http.MethodPost, "/sandboxes", "Sandboxes", "Create a sandbox")
	create.DefaultStatus = http.StatusCreated
	answers(s, create, s.create)
	answers(s, operation("list-sandboxes", http.MethodGet, "/sandboxes", "Sandboxes", "List sandboxes, a page at a time"), s.list)
	answers(s, operation("get-sandbox", http.MethodGet, "/sandboxes/{id}", "Sandboxes", "Describe a sandbox"), s.get)
	huma.Register(s.api, operation("remove-sandbox", http.MethodDelete, "/sandboxes/{id}", "Sandboxes", "Remove a sandbox with its files"), s.remove)
	huma.Register(s.api, operation("remove-group", http.MethodDelete, "/groups/{group}", "Sandboxes", "Remove the sandboxes of a group"), s.removeGroup)
}

// find returns the sandbox of that id or name, if the caller may use it.
func (s *Server) find(ctx context.Context, id string) (*runner.Info, error) {
	return s.inspect(ctx, id, false)
}

// inspect describes a sandbox. With ended that can be a sandbox without processes and files, which the runner remembers for
// a while.
func (s *Server) inspect(ctx context.Context, id string, ended bool) (*runner.Info, error) {
	if err := target(id); err != nil {
		return nil, err
	}
	info, err := s.service(ctx).Inspect(ctx, id)
	if err != nil {
		return nil, failed(err)
	}
	if info.State == runner.Ended && !ended {
		return nil, problem(http.StatusNotFound, "the sandbox has ended, and its files are removed")
	}
	return info, nil
}

// target checks that a text can name a sandbox. Routes that run often do only this: the runner's description of the sandbox, for
// find, takes longer than their own call, which fails without the sandbox.
func target(id string) error {
	if !runner.IsTarget(id) {
		return problem(http.StatusNotFound, ipc.NoSuchSandbox(id).Error())
	}
	return nil
}

// createInput is the request of create.
type createInput struct{ Body client.CreateRequest }

func (s *Server) create(ctx context.Context, in *createInput) (a client.Sandbox, err error) {
	r, err := createOf(&in.Body.Settings)
	if err != nil {
		return a, err
	}
	for _, m := range in.Body.Mounts {
		r.Mounts = append(r.Mounts, session.HostMount(m))
	}
	spec := &r.Create.Spec
	spec.Name = cmp.Or(in.Body.Name, newName())
	spec.TTL = runner.Duration(cmp.Or(time.Duration(in.Body.TTLSeconds)*time.Second, runner.Longest))
	sb, err := s.service(ctx).Create(ctx, r, false)
	if err != nil {
		return a, err
	}
	if made := sb.Made(); made != nil {
		a = sandboxOf(made)
	} else {
		a, err = s.described(ctx, runner.InGroup(spec.Name, r.Create.Egress.Group))
	}
	a.Warnings = s.reduced(ctx, r)
	return a, err
}

// createOf checks the settings of a sandbox.
func createOf(q *client.Settings) (r session.Request, err error) {
	c := &r.Create
	c.Image.Given, r.Secrets = q.Image, q.Secrets
	if q.Limits != nil {
		c.Spec.Limits = runner.Limits{Memory: q.Limits.Memory, CPUs: q.Limits.CPUs, PIDs: q.Limits.PIDs, Disk: q.Limits.Disk}
	}
	if q.Network != nil {
		c.Egress = networkOf(q.Network)
	}
	if c.Egress.Group = q.Group; q.Group != "" {
		if err = runner.CheckMember(q.Group); err != nil {
			return r, refused("group", err.Error())
		}
	}
	c.Spec.Defaults.Env, err = environ(q.Env)
	return r, err
}

func networkOf(n *client.Network) session.Egress {
	e := session.Egress{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny}
	if n.Ask {
		e.Ask = runner.AskTime
	}
	return e
}

// described returns a sandbox as an answer.
func (s *Server) described(ctx context.Context, id string) (a client.Sandbox, err error) {
	info, err := s.find(ctx, id)
	if err != nil {
		return a, err
	}
	a = sandboxOf(info)
	a.Ports = portAPI{s}.portsOf(info.ID, a.Ports)
	return a, nil
}

func sandboxOf(i *runner.Info) client.Sandbox {
	a := client.Sandbox{
		ID: i.ID, Name: i.Name, Namespace: i.Spec.Frontend.Namespace(), State: string(i.State), Image: i.Spec.Image, Created: i.Created, Expires: i.Expires, Execs: i.Execs,
		Limits: limitsOf(i.Spec.Limits), Network: client.Network{Mode: "none"},
	}
	if i.Receipt != nil {
		a.Level = string(i.Receipt.Level)
	}
	if e := i.Spec.Egress; e != nil {
		a.Network = client.Network{Mode: cmp.Or(e.Mode, "none"), Allow: e.Allow, Deny: e.Deny, Ask: e.Ask > 0}
		a.Group = e.Group
	}
	for _, p := range i.Spec.Publish {
		if p.Within == "" && !strings.HasPrefix(p.Listen, "unix:") { // a path of the host
			a.Ports = append(a.Ports, client.Port{Listen: p.Listen, To: p.To})
		}
	}
	return a
}

// limitsOf converts limits for an answer, where 0 means no limit.
func limitsOf(l runner.Limits) client.Limits {
	return client.Limits{Memory: max(l.Memory, 0), CPUs: max(l.CPUs, 0), PIDs: max(l.PIDs, 0), Disk: max(l.Disk, 0)}
}

func (s *Server) get(ctx context.Context, in *Named) (client.Sandbox, error) {
	return s.described(ctx, in.ID)
}

func (s *Server) remove(ctx context.Context, in *Named) (*struct{}, error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.service(ctx).Remove(ctx, info.ID); errors.Is(err, session.ErrNotFound) { // another call was first
		return nil, problem(http.StatusNotFound, ipc.NoSuchSandbox(in.ID).Error())
	} else if err != nil {
		return nil, failed(err)
	}
	s.published.remove(func(f *forward) bool { return f.sandbox == info.ID })
	return nil, nil
}

// groupInput names a group.
type groupInput struct {
	Group string `path:"group" maxLength:"63" doc:"Name of the group"`
}

func (s *Server) removeGroup(ctx context.Context, in *groupInput) (*struct{}, error) {
	ids, err := s.service(ctx).RemoveGroup(ctx, in.Group)
	switch {
	case err != nil:
		return nil, failed(err)
	case len(ids) == 0:
		return nil, problem(http.StatusNotFound, fmt.Sprintf("group %q: it has no sandboxes", in.Group))
	}
	s.published.remove(func(f *forward) bool { return slices.Contains(ids, f.sandbox) })
	return nil, nil
}
