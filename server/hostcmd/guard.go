package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session/events"
)

// Options configures a Guard.
type Options struct {
	Policy *Policy
	State  string // directory of the requests
	// Audit writes an entry of the audit log. If it fails, nothing is executed. Nil: there is no log.
	Audit func(context.Context, events.Event) error
	// Redact returns a writer that blanks secrets on their way to w, without changing their length. Nil: nothing is blanked.
	Redact func(w io.Writer) io.WriteCloser
	// Copy copies a file or directory, whose path has no links, into a sandbox of the caller. Nil: no copies.
	Copy func(ctx context.Context, by Caller, path, sandbox, dst string) error
	// Credential returns the place with credentials that a path overlaps, unless listed contains it.
	Credential func(path string, listed []string) (place string, found bool)
	Private    []string // further files that are never used, such as a token's
}

// Guard decides about requests, and executes them. It is safe for concurrent use.
type Guard struct {
	options Options
	policy  *Policy
	store   *Store
	owner   string
	lives   *os.File
	private []string
	slots   chan struct{}
	decided chan struct{}
	ctx     context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	refused map[string]bool // what a person or time refused, by [Request.choiceDigest]
	filed   map[string][]time.Time
}

// entry is a request that this process made.
type entry struct {
	*frozen
	done chan struct{} // closed when the request is over, or granted

	// With the guard's lock:
	state  State
	why    string
	until  time.Time
	ended  time.Time
	result *Result
}

// Bounds of a process's requests.
const (
	atOnce        = 4 // commands and files
	maxWaiting    = 32
	maxOfCaller   = 8
	maxFiled      = 30 // that a person is asked about, of one namespace in filedTime
	filedTime     = 10 * time.Minute
	resultsKept   = 64
	resultTime    = 15 * time.Minute
	maxRemembered = 1000
)

var (
	errFull  = errors.New("too many requests wait for a person")
	errAgain = errors.New("a person refused this request, or did not answer: it is not asked again")
)

// Open opens a Guard. The caller closes it.
func Open(o Options) (*Guard, error) {
	store, err := OpenStore(o.State)
	if err != nil {
		return nil, err
	}
	g := &Guard{
		options: o, policy: o.Policy, store: store, slots: make(chan struct{}, atOnce), decided: make(chan struct{}, 1),
		entries: map[string]*entry{}, refused: map[string]bool{}, filed: map[string][]time.Time{},
	}
	if err := g.keepPrivate(); err != nil {
		return nil, err
	}
	if g.owner, g.lives, err = store.own(); err != nil {
		return nil, fmt.Errorf("open host requests: %w", err)
	}
	store.tidy() // on an error, the next start tries again
	g.ctx, g.end = context.WithCancel(context.Background())
	g.workers.Go(g.watch)
	return g, nil
}

// keepPrivate lists demesne's own files, by each of their paths.
func (g *Guard) keepPrivate() error {
	state, err := fsutil.StateDir("")
	if err != nil {
		return fmt.Errorf("find state: %w", err)
	}
	for _, p := range append([]string{state, g.options.State, g.policy.file}, g.options.Private...) {
		if p == "" {
			continue
		}
		if p, err = filepath.Abs(p); err != nil {
			return fmt.Errorf("find %q: %w", p, err)
		}
		g.private = append(g.private, p)
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p {
			g.private = append(g.private, real)
		}
	}
	for _, r := range append([]*rules{g.policy.own}, slices.Collect(maps.Values(g.policy.spaces))...) {
		for _, root := range r.write {
			if i := slices.IndexFunc(g.private, func(p string) bool { return fsutil.Within(p, root) || fsutil.Within(root, p) }); i >= 0 {
				return fmt.Errorf("host policy: write: %q overlaps demesne's own %q", root, g.private[i])
			}
		}
	}
	return nil
}

// Store returns the requests on disk.
func (g *Guard) Store() *Store { return g.store }

// Policy returns the policy.
func (g *Guard) Policy() *Policy { return g.policy }

// Close ends running commands and refuses what waits.
func (g *Guard) Close() {
	g.end()
	g.workers.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.entries {
		if !e.state.over() {
			g.store.change(e.ID, e.state, func(r *Record) { r.State, r.Why = Lost, "the server that asked has ended" })
			g.finish(e, Lost, "the server ended")
		}
	}
	g.lives.Close()
}

// Outcome is the answer to a request.
type Outcome struct {
	ID      string
	State   State
	Expires time.Time // of a pending request
	Until   time.Time // of a grant
	Why     string
	Result  *Result // with Done
}

// Do performs what a caller asks for. If a person must decide, it waits for that at most wait, and then answers a pending outcome. The
// end of ctx does not withdraw a request.
func (g *Guard) Do(ctx context.Context, by Caller, a Ask, wait time.Duration) (*Outcome, error) {
	f, allowed, err := g.freeze(by, a)
	if err == nil && allowed {
		return g.now(ctx, f)
	}
	var e *entry
	if err == nil {
		e, err = g.file(f)
	}
	if err != nil {
		g.audit(ctx, events.HostDenied, f, by, "why", err.Error())
		return nil, err
	}
	return g.wait(ctx, e, wait), nil
}

// now performs a request that the policy allows.
func (g *Guard) now(ctx context.Context, f *frozen) (*Outcome, error) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.ctx.Done():
		return nil, g.ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	res, err := g.perform(ctx, f, "policy")
	if err != nil {
		return nil, err
	}
	return &Outcome{ID: f.ID, State: Done, Result: res}, nil
}

// perform executes a request between two entries of the audit log.
func (g *Guard) perform(ctx context.Context, f *frozen, by string) (*Result, error) {
	if err := g.audit(ctx, events.HostStarted, f, f.Caller, "by", by); err != nil {
		return nil, fmt.Errorf("write the audit log: %w", err)
	}
	res, err := g.execute(ctx, f)
	detail := []string{"by", by}
	if err != nil {
		detail = append(detail, "error", err.Error())
	} else if f.Kind == Exec {
		detail = append(detail, "exit", fmt.Sprint(res.Exit))
	}
	g.audit(context.WithoutCancel(ctx), events.HostCompleted, f, f.Caller, detail...)
	return res, err
}

// file puts a request into the queue, or finds the same one there.
func (g *Guard) file(f *frozen) (*entry, error) {
	g.applyDecisions() // what a person refused a moment ago is not asked again
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, errors.New("the server ends")
	}
	same := f.repeats()
	waiting, own := 0, 0
	for _, e := range g.entries {
		if e.state.over() || e.state == Granted && !time.Now().Before(e.until) {
			continue
		}
		if e.repeats() == same {
			return e, nil
		}
		if e.state == Pending {
			waiting++
			if e.Caller.Namespace == f.Caller.Namespace {
				own++
			}
		}
	}
	recent := slices.DeleteFunc(g.filed[f.Caller.Namespace], func(t time.Time) bool { return time.Since(t) > filedTime })
	switch {
	case g.refused[f.choiceDigest()]:
		return nil, errAgain
	case waiting >= maxWaiting || own >= maxOfCaller:
		return nil, errFull
	case len(recent) >= maxFiled:
		return nil, fmt.Errorf("%w: %d in %v", errFull, maxFiled, filedTime)
	}
	if err := g.audit(g.ctx, events.HostRequested, f, f.Caller); err != nil {
		return nil, fmt.Errorf("write the audit log: %w", err)
	}
	if err := g.store.put(&Record{Request: f.Request, Owner: g.owner, State: Pending}); err != nil {
		return nil, err
	}
	g.filed[f.Caller.Namespace] = append(recent, time.Now())
	e := &entry{frozen: f, done: make(chan struct{}), state: Pending}
	g.entries[f.ID] = e
	g.forget()
	g.CheckDecisions()
	return e, nil
}

// forget drops results that were kept long enough.
func (g *Guard) forget() {
	var over []*entry
	for id, e := range g.entries {
		if e.state.over() && time.Since(e.ended) > resultTime {
			delete(g.entries, id)
		} else if e.state.over() {
			over = append(over, e)
		}
	}
	slices.SortFunc(over, func(a, b *entry) int { return a.ended.Compare(b.ended) })
	for _, e := range over[:max(0, len(over)-resultsKept)] {
		delete(g.entries, e.ID)
	}
	g.store.tidy()
}

// Collect returns what has become of a caller's request. It waits for that at most wait.
func (g *Guard) Collect(ctx context.Context, by Caller, id string, wait time.Duration) (*Outcome, error) {
	g.mu.Lock()
	e := g.entries[id]
	g.mu.Unlock()
	if e == nil || e.Caller.Namespace != by.Namespace {
		return nil, fmt.Errorf("request %q: %w", text.Shorten(id, 40), ErrNone)
	}
	return g.wait(ctx, e, wait), nil
}

func (g *Guard) wait(ctx context.Context, e *entry, wait time.Duration) *Outcome {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-e.done:
	case <-late.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	o := &Outcome{ID: e.ID, State: e.state, Why: e.why, Result: e.result, Until: e.until}
	if e.state == Pending {
		o.Expires = e.Expires
	}
	return o
}

// finish ends a request. The caller has the lock.
func (g *Guard) finish(e *entry, s State, why string) {
	if e.state.over() {
		return
	}
	waits := e.state != Granted
	e.state, e.why, e.ended = s, why, time.Now()
	e.content = nil
	if (s == Refused || s == Expired) && waits && len(g.refused) < maxRemembered {
		g.refused[e.choiceDigest()] = true
	}
	if waits {
		close(e.done)
	}
}

// audit writes an entry. f may be nil or hold less than a whole request.
func (g *Guard) audit(ctx context.Context, t events.Type, f *frozen, by Caller, more ...string) error {
	if g.options.Audit == nil {
		return nil
	}
	detail := map[string]string{}
	if f != nil {
		detail["request"], detail["kind"], detail["digest"] = f.ID, string(f.Kind), f.Digest()
		for k, v := range map[string]string{"command": Line(f.Argv), "program": f.Program.Path, "directory": f.Dir.Path, "path": f.File.Path, "given": f.Given, "problem": f.Problem} {
			if v != "" {
				detail[k] = g.redacted(v)
			}
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		detail[more[i]] = g.redacted(more[i+1])
	}
	return g.options.Audit(ctx, events.Event{Time: time.Now(), Type: t, Namespace: by.Namespace, Caller: by.Name, Detail: detail})
}
