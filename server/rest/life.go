package rest

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"

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
		within(s, op, func(ctx context.Context, info *runner.Info, _ *Named) (a client.Sandbox, err error) {
			if err := what.do(s.service(ctx), ctx, info.ID); err != nil {
				return a, err
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
		within(s, op, func(ctx context.Context, info *runner.Info, in *inSandbox[client.ForkRequest]) (a client.Sandbox, err error) {
			name := cmp.Or(in.Body.Name, newName())
			if err := what.do(s.service(ctx), ctx, info.ID, name); err != nil {
				return a, err
			}
			return s.described(ctx, name)
		})
	}
	within(s, operation("limit-sandbox", http.MethodPatch, "/sandboxes/{id}/limits", "Sandboxes", "Change limits of a running sandbox"), h.limit)
	within(s, operation("get-usage", http.MethodGet, "/sandboxes/{id}/usage", "Sandboxes", "Measure a running sandbox"), h.usage)
	answers(s, operation("list-usage", http.MethodGet, "/usage", "Sandboxes", "List what running sandboxes used in the last minutes"), h.usages)
	answers(s, operation("get-receipt", http.MethodGet, "/sandboxes/{id}/receipt", "Sandboxes", "Get what the kernel enforces of a sandbox, or enforced of one that has ended: for a while"), h.receipt)
	within(s, operation("list-changes", http.MethodGet, "/sandboxes/{id}/changes", "Sandboxes", "List the files that differ from the sandbox's image"), h.changes)
}

// newName returns a name for a sandbox whose creator named none.
func newName() string { return "sb-" + strings.ToLower(rand.Text())[:12] }

// resume starts a command, which resumes the others.
func resume(service Service, ctx context.Context, id string) error {
	_, err := service.Exec(ctx, id, session.RunOptions{Command: runner.Command{Argv: []string{"/bin/true"}, Dir: "/", Else: [][]string{{"/usr/bin/true"}, session.Shell(":")}}}, session.Callbacks{})
	return err
}

func (s lifeAPI) limit(ctx context.Context, info *runner.Info, in *inSandbox[client.Limits]) (a client.Sandbox, err error) {
	q := in.Body
	if q == (client.Limits{}) {
		return a, refused("memory", "one of memory, cpus and pids is required")
	}
	if q.Disk != 0 {
		return a, refused("disk", "cannot change while the sandbox exists")
	}
	if _, err := s.service(ctx).Open(ctx, info.ID); err != nil { // a stopped sandbox has no limits to change
		return a, err
	}
	l := runner.Limits{Memory: q.Memory, CPUs: q.CPUs, PIDs: q.PIDs}
	if err := s.service(ctx).Limit(ctx, info.ID, l); err != nil {
		return a, err
	}
	a, err = s.described(ctx, info.ID)
	a.Warnings = s.service(ctx).Grants(ctx, l, 0).Warnings()
	return a, err
}

func (s lifeAPI) usage(ctx context.Context, info *runner.Info, _ *Named) (client.Usage, error) {
	if info.State != runner.Running && info.State != runner.Paused { // to measure it would start it
		return client.Usage{}, nil
	}
	u, err := s.service(ctx).Usage(ctx, info.ID)
	return client.Usage(u), err
}

// usagesInput is the request of usages.
type usagesInput struct {
	Sandbox string `query:"sandbox" maxLength:"128" doc:"All samples of this one. Without it: the newest of each"`
}

// usages answers with the samples that the server keeps. They are measured anyway: a client causes no work in the sandboxes.
func (s lifeAPI) usages(ctx context.Context, in *usagesInput) (client.Page[client.SandboxUsage], error) {
	all := page[client.SandboxUsage](nil)
	var infos []runner.Info
	if in.Sandbox != "" {
		one, err := s.find(ctx, in.Sandbox)
		if err != nil {
			return all, err
		}
		infos = append(infos, *one)
	} else if list, err := s.service(ctx).List(ctx); err != nil {
		return all, err
	} else {
		infos = list
	}
	if s.opts.Samples == nil {
		return all, nil
	}
	for _, i := range infos {
		samples := s.opts.Samples(i.ID)
		if in.Sandbox == "" {
			samples = samples[max(0, len(samples)-1):]
		}
		if len(samples) > 0 && i.Spec.Lifetime == runner.Persistent {
			all.Items = append(all.Items, client.SandboxUsage{Sandbox: i.ID, Samples: samples})
		}
	}
	return all, nil
}

func (s lifeAPI) receipt(ctx context.Context, in *Named) (a client.Receipt, err error) {
	info, err := s.inspect(ctx, in.ID, true)
	if err != nil {
		return a, err
	}
	r := info.Receipt
	if r == nil {
		return a, problem(http.StatusConflict, "the sandbox is stopped: it gets a receipt when it starts")
	}
	a = client.Receipt{
		Version: r.Version, Sandbox: r.Sandbox, Level: string(r.Level), Kernel: r.Kernel, Image: r.Image, ImageDigest: r.ImageDigest,
		Landlock: r.Landlock, Seccomp: r.Seccomp, Network: r.Network,
	}
	for _, l := range r.Layers {
		a.Layers = append(a.Layers, client.Layer{Name: l.Name, Status: string(l.Status), Detail: l.Detail, Why: l.Why, Fix: l.Fix})
	}
	for _, l := range r.Limits {
		a.Limits = append(a.Limits, client.LimitReceipt{Name: l.Name, Value: l.Value, Mechanism: l.Mechanism, Status: string(l.Status), Why: l.Why, Fix: l.Fix})
	}
	return a, nil
}

func (s lifeAPI) changes(ctx context.Context, info *runner.Info, _ *Named) (a client.Changes, err error) {
	d, err := s.service(ctx).Diff(ctx, info.ID)
	if err != nil {
		return a, err
	}
	a = client.Changes{Items: []client.Change{}, Cut: d.Truncated}
	for _, c := range d.Changes {
		a.Items = append(a.Items, client.Change{Path: strings.ToValidUTF8(string(c.Path), "\uFFFD"), Kind: c.Kind, Executes: c.Executes})
	}
	return a, nil
}
