package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/internal/flock"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session/events"
)

// observer reports what a Service does to Options.Observe. It stands between a Service and its engine, so that every
// frontend is observed alike. The zero value reports nothing.
//
// Texts of events are bounded, and lack the values of the sandbox's credentials.
type observer struct {
	tell      func(context.Context, events.Event)
	namespace string // of the Service's callers
	hidden    hidden

	mu    sync.Mutex
	names map[string]string // ids by name
}

// Bounds of one event's texts.
const (
	commandShown = 1 << 10
	textShown    = 512
	deniedShown  = 20 // destinations of one command
)

// engine returns e, observed.
func (o *observer) engine(e Engine) Engine {
	if o.tell == nil {
		return e
	}
	return observed{e, o}
}

// report reports an event, whose details are pairs of a name and a value. Empty values are left out.
func (o *observer) report(ctx context.Context, kind events.Type, sandbox, run string, details ...string) {
	if o.tell == nil {
		return
	}
	e := events.Event{Type: kind, Namespace: o.namespace, Sandbox: o.id(sandbox), Run: run}
	for i := 0; i+1 < len(details); i += 2 {
		if v := details[i+1]; v != "" {
			if e.Detail == nil {
				e.Detail = map[string]string{}
			}
			e.Detail[details[i]] = text.Shorten(o.hidden.text(e.Sandbox, v), shown(details[i]))
		}
	}
	o.tell(ctx, e)
}

// shown returns how many bytes a detail may have.
func shown(detail string) int {
	if detail == "command" {
		return commandShown
	}
	return textShown
}

// namesMost bounds the names that an observer remembers.
const namesMost = 4096

// named remembers a sandbox's name, because some calls have only that.
func (o *observer) named(name, id string) {
	if name == "" || name == id {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil || len(o.names) >= namesMost {
		o.names = map[string]string{}
	}
	o.names[name] = id
}

// id returns the id of a name that is known, or else the name.
func (o *observer) id(idOrName string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id := o.names[idOrName]; id != "" {
		return id
	}
	return idOrName
}

// observed is an engine whose use is reported.
type observed struct {
	Engine
	o *observer
}

func (e observed) Reserve(ctx context.Context, key string) (string, func(), error) {
	slot, release, err := e.Engine.Reserve(ctx, key)
	if err != nil {
		e.o.exceeded(ctx, err)
	}
	return slot, release, err
}

func (e observed) Create(ctx context.Context, s runner.Spec) (*Sandbox, error) {
	sb, err := e.Engine.Create(ctx, s)
	return e.made(ctx, &s, sb, err)
}

// made reports a sandbox that was made, or the bound that prevented that.
func (e observed) made(ctx context.Context, s *runner.Spec, sb *Sandbox, err error) (*Sandbox, error) {
	if err != nil {
		e.o.exceeded(ctx, err)
		return nil, err
	}
	e.o.hidden.add(sb.ID, secretsOf(s))
	e.o.named(s.Name, sb.ID)
	if !sb.Existing {
		e.o.created(ctx, sb.ID, "image", s.Image, "name", s.Name, "egress", egressWord(s.Egress), "lifetime", lifetimeWord(s.Lifetime), "level", string(sb.Level))
		for _, k := range secretsOf(s) {
			e.o.report(ctx, events.VaultAccessed, sb.ID, "", "name", k.Name, "host", k.Host)
		}
	}
	return e.sandbox(sb), nil
}

func (o *observer) created(ctx context.Context, id string, details ...string) {
	o.report(ctx, events.SessionCreated, id, "", details...)
}

// exceeded reports an error that says that a bound was reached.
func (o *observer) exceeded(ctx context.Context, err error) {
	if e, ok := errors.AsType[*ipc.Error](err); ok && (e.Code == ipc.CodeBusy || e.Code == ipc.CodeTooMuch || e.Code == ipc.CodeTooMany || e.Code == ipc.CodeNoSpace) {
		o.report(ctx, events.ResourceExceeded, "", "", "error", err.Error())
	}
}

// queued reports a call that has to wait for others.
func (o *observer) queued(ctx context.Context, sandbox string, t *flock.Turn) {
	if o.tell == nil {
		return
	}
	if ahead := t.Ahead(); ahead > 0 {
		o.report(ctx, events.QueueBackpressure, sandbox, "", "ahead", strconv.Itoa(ahead))
	}
}

// question reports a question. The result reports its answer.
func (o *observer) question(ctx context.Context, q runner.Question) (answer func(allow, answered bool)) {
	about := []string{"name", q.Name, "port", strconv.Itoa(int(q.Port))}
	o.report(ctx, events.EgressRequested, q.Sandbox, "", about...)
	return func(allow, answered bool) {
		switch {
		case allow && answered:
			o.report(ctx, events.EgressApproved, q.Sandbox, "", about...)
		case answered:
			o.report(ctx, events.EgressDenied, q.Sandbox, "", append(about, "reason", "refused by the caller")...)
		default:
			o.report(ctx, events.EgressDenied, q.Sandbox, "", append(about, "reason", "no answer")...)
		}
	}
}

func secretsOf(s *runner.Spec) []runner.Secret {
	if s.Egress == nil {
		return nil
	}
	return s.Egress.Secrets
}

func egressWord(e *runner.Egress) string {
	switch {
	case e == nil:
		return runner.NoEgress
	case e.Mode == "":
		return "rules"
	}
	return e.Mode
}

func lifetimeWord(l runner.Lifetime) string {
	if l == runner.OneShot {
		return "one-shot"
	}
	return string(l)
}

// sandbox returns sb with its commands observed.
func (e observed) sandbox(sb *Sandbox) *Sandbox {
	exec, copied := sb.Exec, *sb
	copied.Exec = func(ctx context.Context, cmd runner.Command) (Process, error) {
		e.o.hidden.add(sb.ID, cmd.Secrets)
		p, err := exec(ctx, cmd)
		return e.started(ctx, sb.ID, &cmd, p, err, false)
	}
	return &copied
}

func (e observed) Open(ctx context.Context, idOrName string) (*Sandbox, error) {
	sb, err := e.Engine.Open(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	e.o.named(idOrName, sb.ID)
	return e.sandbox(sb), nil
}

func (e observed) Run(ctx context.Context, s runner.Spec, cmd runner.Command) (*Sandbox, Process, error) {
	sb, p, err := e.Engine.Run(ctx, s, cmd)
	if sb, err = e.made(ctx, &s, sb, err); err != nil {
		return nil, nil, err
	}
	p, err = e.started(ctx, sb.ID, &cmd, p, nil, s.Lifetime == runner.OneShot)
	return sb, p, err
}

func (e observed) Exec(ctx context.Context, idOrName string, cmd runner.Command) (*Sandbox, Process, error) {
	sb, p, err := e.Engine.Exec(ctx, idOrName, cmd)
	if err != nil {
		_, err = e.started(ctx, idOrName, &cmd, nil, err, false)
		return nil, nil, err
	}
	e.o.named(idOrName, sb.ID)
	e.o.hidden.add(sb.ID, cmd.Secrets)
	p, err = e.started(ctx, sb.ID, &cmd, p, nil, false)
	return e.sandbox(sb), p, err
}

// started reports a command that began, or that the sandbox cannot execute. last means that the sandbox ends with it.
func (e observed) started(ctx context.Context, id string, cmd *runner.Command, p Process, err error, last bool) (Process, error) {
	run := strings.ToLower(rand.Text()[:13])
	text := strings.Join(cmd.Argv, " ")
	if err != nil {
		if notStarted(err) != nil {
			e.o.report(ctx, events.ExecutionFailed, id, run, "command", text, "error", err.Error())
		}
		e.o.exceeded(ctx, err)
		return nil, err
	}
	e.o.report(ctx, events.ExecutionStarted, id, run, "command", text)
	return &observedProcess{Process: p, o: e.o, ctx: context.WithoutCancel(ctx), id: id, run: run, last: last, began: time.Now()}, nil
}

func (e observed) Remove(ctx context.Context, idOrName string) error {
	err := e.Engine.Remove(ctx, idOrName)
	if err == nil {
		e.o.killed(ctx, idOrName, "action", "remove")
		e.o.hidden.drop(e.o.id(idOrName))
	}
	return err
}

func (o *observer) killed(ctx context.Context, id string, details ...string) {
	o.report(ctx, events.SessionKilled, id, "", append(details, "cause", events.CauseOf(ctx))...)
}

func (e observed) Stop(ctx context.Context, idOrName string, grace time.Duration) error {
	err := e.Engine.Stop(ctx, idOrName, grace)
	if err == nil {
		e.o.killed(ctx, idOrName, "action", "stop")
	}
	return err
}

func (e observed) GC(ctx context.Context) ([]string, error) {
	removed, err := e.Engine.GC(ctx)
	for _, id := range removed {
		e.o.killed(ctx, id, "action", "gc")
	}
	return removed, err
}

func (e observed) Fork(ctx context.Context, idOrName, name, out string, publish ...runner.Port) (runner.Forked, error) {
	f, err := e.Engine.Fork(ctx, idOrName, name, out, publish...)
	return e.forked(ctx, idOrName, name, "fork", f, err)
}

func (e observed) EphemeralFork(ctx context.Context, idOrName, out string, mounts []runner.Mount, routes []runner.Route) (runner.Forked, error) {
	f, err := e.Engine.EphemeralFork(ctx, idOrName, out, mounts, routes)
	return e.forked(ctx, idOrName, "", "fork", f, err)
}

func (e observed) Snapshot(ctx context.Context, idOrName, name string) (runner.Forked, error) {
	f, err := e.Engine.Snapshot(ctx, idOrName, name)
	return e.forked(ctx, idOrName, name, "snapshot", f, err)
}

func (e observed) EphemeralSnapshot(ctx context.Context, idOrName string) (runner.Forked, error) {
	f, err := e.Engine.EphemeralSnapshot(ctx, idOrName)
	return e.forked(ctx, idOrName, "", "snapshot", f, err)
}

func (e observed) forked(ctx context.Context, from, name, action string, f runner.Forked, err error) (runner.Forked, error) {
	if err != nil {
		e.o.exceeded(ctx, err)
		return f, err
	}
	e.o.named(name, f.ID)
	e.o.hidden.inherit(f.ID, e.o.id(from))
	e.o.created(ctx, f.ID, "action", action, "from", e.o.id(from), "name", name)
	return f, nil
}

func (e observed) ChangeEgress(ctx context.Context, c runner.EgressChange) error {
	err := e.Engine.ChangeEgress(ctx, c)
	if err != nil || c.Allow == nil && c.Deny == nil && !c.Replace {
		return err
	}
	replaced := ""
	if c.Replace {
		replaced = "yes"
	}
	if c.Mode != "" && c.Mode != runner.NoEgress || len(c.Allow) > 0 {
		e.o.report(ctx, events.EgressApproved, c.Sandbox, "", "rules", strings.Join(c.Allow, ", "), "mode", c.Mode, "replaced", replaced)
	}
	if len(c.Deny) > 0 || c.Replace && len(c.Allow) == 0 {
		e.o.report(ctx, events.EgressDenied, c.Sandbox, "", "rules", strings.Join(c.Deny, ", "), "mode", c.Mode, "replaced", replaced)
	}
	return nil
}

// observedProcess is a command whose end is reported once, by the first Wait that sees it.
type observedProcess struct {
	Process
	o       *observer
	ctx     context.Context // of its start
	id, run string
	last    bool // the sandbox ends with it
	began   time.Time
	once    sync.Once
}

func (p *observedProcess) Wait(ctx context.Context) (*runner.Result, error) {
	r, err := p.Process.Wait(ctx)
	if ctx.Err() == nil || r != nil {
		p.once.Do(func() { p.ended(r, err) })
	}
	return r, err
}

// kinds are the events of the ends that are not a failure of the command itself.
func kinds() map[runner.Reason]events.Type {
	return map[runner.Reason]events.Type{runner.TimedOut: events.ExecutionTimeout, runner.Exited: events.ExecutionCompleted}
}

// ended reports the end of a command.
func (p *observedProcess) ended(r *runner.Result, err error) {
	if r == nil {
		p.o.report(p.ctx, events.ExecutionFailed, p.id, p.run, "reason", string(runner.Lost), "error", fmt.Sprint(err))
		return
	}
	for _, b := range r.Denied[:min(len(r.Denied), deniedShown)] {
		if b.Failed {
			continue
		}
		p.o.report(p.ctx, events.EgressDenied, p.id, p.run, "name", b.Host, "port", strconv.Itoa(int(b.Port)), "reason", b.Reason, "times", strconv.Itoa(b.Times))
	}
	kind, known := kinds()[r.Reason]
	if !known || r.Reason == runner.Exited && r.ExitCode != 0 {
		kind = events.ExecutionFailed
	}
	if slices.Contains([]runner.Reason{runner.OOM, runner.DiskFull, runner.PIDLimit, runner.OverBudget}, r.Reason) {
		p.o.report(p.ctx, events.ResourceExceeded, p.id, p.run, "limit", string(r.Reason), "detail", r.Detail)
	}
	p.o.report(p.ctx, kind, p.id, p.run, "exit_code", strconv.Itoa(r.ExitCode), "reason", string(r.Reason), "detail", r.Detail,
		"seconds", seconds(time.Since(p.began).Seconds()), "cpu_seconds", seconds(r.CPU))
	if p.last {
		p.o.killed(p.ctx, p.id, "action", "end")
		p.o.hidden.drop(p.id)
	}
}

func seconds(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }

// Report passes an event to Options.Observe, for what frontends do in a sandbox beyond commands.
func (s *Service) Report(ctx context.Context, kind events.Type, sandbox string, details map[string]string) {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(details)) {
		pairs = append(pairs, name, details[name])
	}
	s.watch.report(ctx, kind, sandbox, "", pairs...)
}
