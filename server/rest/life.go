package rest

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
	"demesne/session"
)

// lifeAPI has the handlers that change the state of a sandbox.
type lifeAPI struct{ *Server }

func (s *Server) lifeRoutes() {
	h := lifeAPI{s}
	for verb, what := range map[string]struct {
		summary string
		do      func(service Service, ctx context.Context, id string) error
	}{
		"start": {"Start a stopped sandbox", func(service Service, ctx context.Context, id string) error {
			_, err := service.Open(ctx, id)
			return err
		}},
		"stop":   {"End the processes of a sandbox, and keep its files", Service.Stop},
		"pause":  {"Pause the processes of a sandbox, in memory", Service.Pause},
		"resume": {"Resume the processes of a paused sandbox", resume},
	} {
		op := operation(verb+"-sandbox", http.MethodPost, "/sandboxes/{id}/"+verb, "Sandboxes", what.summary)
		huma.Register(s.api, op, func(ctx context.Context, in *Named) (*of[client.Sandbox], error) {
			info, err := s.find(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			if err := what.do(s.service(ctx), ctx, info.ID); err != nil {
				return nil, failed(err)
			}
			return s.described(ctx, info.ID)
		})
	}
	for verb, what := range map[string]struct {
		summary string
		do      func(service Service, ctx context.Context, from, name string) error
	}{
		"fork":     {"Make a sandbox with the files of another one, or of a snapshot", Service.Fork},
		"snapshot": {"Keep the files of a sandbox as they are now", Service.Snapshot},
	} {
		op := operation(verb+"-sandbox", http.MethodPost, "/sandboxes/{id}/"+verb, "Sandboxes", what.summary)
		op.DefaultStatus = http.StatusCreated
		huma.Register(s.api, op, func(ctx context.Context, in *inSandbox[client.ForkRequest]) (*of[client.Sandbox], error) {
			info, err := s.find(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			name := cmp.Or(in.Body.Name, newName())
			if err := what.do(s.service(ctx), ctx, info.ID, name); err != nil {
				return nil, failed(err)
			}
			return s.described(ctx, name)
		})
	}
	huma.Register(s.api, operation("limit-sandbox", http.MethodPatch, "/sandboxes/{id}/limits", "Sandboxes", "Change limits of a running sandbox"), h.limit)
	huma.Register(s.api, operation("get-usage", http.MethodGet, "/sandboxes/{id}/usage", "Sandboxes", "Measure a running sandbox"), h.usage)
	huma.Register(s.api, operation("list-usage", http.MethodGet, "/usage", "Sandboxes", "List what running sandboxes used in the last minutes"), h.usages)
	huma.Register(s.api, operation("get-receipt", http.MethodGet, "/sandboxes/{id}/receipt", "Sandboxes", "Get what the kernel enforces of a sandbox, or enforced of one that has ended: for a while"), h.receipt)
	huma.Register(s.api, operation("list-changes", http.MethodGet, "/sandboxes/{id}/changes", "Sandboxes", "List the files that differ from the sandbox's image"), h.changes)
}

// newName returns a name for a sandbox whose creator named none.
func newName() string { return "sb-" + strings.ToLower(rand.Text())[:12] }

// resume starts a command, which resumes the others.
func resume(service Service, ctx context.Context, id string) error {
	_, err := service.Exec(ctx, id, session.RunOptions{Command: runner.Command{Argv: []string{"/bin/true"}, Dir: "/", Else: [][]string{{"/usr/bin/true"}, session.Shell(":")}}}, session.Callbacks{})
	return err
}

func (s lifeAPI) limit(ctx context.Context, in *inSandbox[client.Limits]) (*of[client.Sandbox], error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	q := in.Body
	if q == (client.Limits{}) {
		return nil, refused("memory", "one of memory, cpus and pids is required")
	}
	if q.Disk != 0 {
		return nil, refused("disk", "cannot change while the sandbox exists")
	}
	if _, err := s.service(ctx).Open(ctx, info.ID); err != nil { // a stopped sandbox has no limits to change
		return nil, failed(err)
	}
	l := runner.Limits{Memory: q.Memory, CPUs: q.CPUs, PIDs: q.PIDs}
	if err := s.service(ctx).Limit(ctx, info.ID, l); err != nil {
		return nil, failed(err)
	}
	a, err := s.described(ctx, info.ID)
	if err == nil {
		a.Body.Warnings = s.service(ctx).Grants(ctx, l, 0).Warnings()
	}
	return a, err
}

func (s lifeAPI) usage(ctx context.Context, in *Named) (*of[client.Usage], error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	var u runner.Usage
	if info.State == runner.Running || info.State == runner.Paused { // to measure others would start them
		if u, err = s.service(ctx).Usage(ctx, info.ID); err != nil {
			return nil, failed(err)
		}
	}
	return &of[client.Usage]{client.Usage(u)}, nil
}

// usagesInput is the request of usages.
type usagesInput struct {
	Sandbox string `query:"sandbox" maxLength:"128" doc:"All samples of this one. Without it: the newest of each"`
}

// usages answers with the samples that the server keeps. They are measured anyway: a client causes no work in the sandboxes.
func (s lifeAPI) usages(ctx context.Context, in *usagesInput) (*of[client.Page[client.SandboxUsage]], error) {
	page := client.Page[client.SandboxUsage]{Items: []client.SandboxUsage{}}
	var infos []runner.Info
	var err error
	if in.Sandbox == "" {
		infos, err = s.service(ctx).List(ctx)
		err = failed(err)
	} else if one, wrong := s.find(ctx, in.Sandbox); wrong == nil {
		infos = append(infos, *one)
	} else {
		err = wrong
	}
	if err != nil || s.opts.Samples == nil {
		return &of[client.Page[client.SandboxUsage]]{page}, err
	}
	for _, i := range infos {
		samples := s.opts.Samples(i.ID)
		if in.Sandbox == "" {
			samples = samples[max(0, len(samples)-1):]
		}
		if len(samples) > 0 && i.Spec.Lifetime == runner.Persistent {
			page.Items = append(page.Items, client.SandboxUsage{Sandbox: i.ID, Samples: samples})
		}
	}
	return &of[client.Page[client.SandboxUsage]]{page}, nil
}

func (s lifeAPI) receipt(ctx context.Context, in *Named) (*of[client.Receipt], error) {
	info, err := s.inspect(ctx, in.ID, true)
	if err != nil {
		return nil, err
	}
	r := info.Receipt
	if r == nil {
		return nil, problem(http.StatusConflict, "the sandbox is stopped: it gets a receipt when it starts")
	}
	a := client.Receipt{
		Version: r.Version, Sandbox: r.Sandbox, Level: string(r.Level), Kernel: r.Kernel, Image: r.Image, ImageDigest: r.ImageDigest,
		Landlock: r.Landlock, Seccomp: r.Seccomp, Network: r.Network,
	}
	for _, l := range r.Layers {
		a.Layers = append(a.Layers, client.Layer{Name: l.Name, Status: string(l.Status), Detail: l.Detail, Why: l.Why, Fix: l.Fix})
	}
	for _, l := range r.Limits {
		a.Limits = append(a.Limits, client.LimitReceipt{Name: l.Name, Value: l.Value, Mechanism: l.Mechanism, Status: string(l.Status), Why: l.Why, Fix: l.Fix})
	}
	return &of[client.Receipt]{a}, nil
}

func (s lifeAPI) changes(ctx context.Context, in *Named) (*of[client.Changes], error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.service(ctx).Diff(ctx, info.ID)
	if err != nil {
		return nil, failed(err)
	}
	a := client.Changes{Items: []client.Change{}, Cut: d.Truncated}
	for _, c := range d.Changes {
		a.Items = append(a.Items, client.Change{Path: strings.ToValidUTF8(string(c.Path), "\uFFFD"), Kind: c.Kind, Executes: c.Executes})
	}
	return &of[client.Changes]{a}, nil
}
