package hostcmd

import (
	"context"
	"errors"
	"os"
	"time"

	"demesne/session/events"
)

// checkEvery is the interval at which the Guard reads decisions of other processes while requests wait.
const checkEvery = 150 * time.Millisecond

// CheckDecisions makes the Guard look for decisions now.
func (g *Guard) CheckDecisions() {
	select {
	case g.decided <- struct{}{}:
	default:
	}
}

// watch obeys decisions until the Guard ends.
func (g *Guard) watch() {
	for {
		next := (<-chan time.Time)(nil)
		if g.applyDecisions() {
			next = time.After(checkEvery)
		}
		select {
		case <-g.ctx.Done():
			return
		case <-g.decided:
		case <-next:
		}
	}
}

// applyDecisions applies the decisions in the records, and reports whether requests wait for a decision or a grant for its end.
func (g *Guard) applyDecisions() (more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.entries {
		if e.state != Pending && e.state != Granted {
			continue
		}
		rec, err := g.store.Get(e.ID)
		switch {
		case errors.Is(err, ErrNone) || errors.Is(err, os.ErrPermission):
			g.finish(e, Refused, "its record is gone")
		case err != nil: // of the disk: try again
		default:
			g.apply(e, rec)
		}
		more = more || e.state == Pending || e.state == Granted
	}
	return more
}

// apply does what a record says. Only the decision is read from it. What is executed is the entry's own.
func (g *Guard) apply(e *entry, rec *Record) {
	now := time.Now()
	switch {
	case rec.State == Refused:
		why := "a person refused it"
		g.audit(g.ctx, events.HostDenied, e.frozen, e.Caller, "by", rec.By)
		g.finish(e, Refused, why)
	case e.state == Granted && !now.Before(e.until):
		g.store.change(e.ID, Expired, func(r *Record) { r.State = Expired })
		g.finish(e, Expired, "its time is over")
	case e.state == Pending && rec.State == Approved:
		g.approved(e, rec)
	case e.state == Pending && !now.Before(e.Expires):
		g.store.change(e.ID, Pending, func(r *Record) { r.State = Expired })
		g.audit(g.ctx, events.HostDenied, e.frozen, e.Caller, "why", "no answer")
		g.finish(e, Expired, "no person answered in time")
	case rec.State != e.state:
		g.finish(e, Lost, "its record was changed")
	}
}

// approved begins an approved request, if it is equal to the frozen one.
func (g *Guard) approved(e *entry, rec *Record) {
	switch {
	case rec.Digest != e.Digest() || rec.Request.Digest() != e.Digest():
		g.audit(g.ctx, events.HostDenied, e.frozen, e.Caller, "why", ErrDigest.Error())
		g.finish(e, Refused, ErrDigest.Error())
		return
	case e.Problem != "":
		g.finish(e, Refused, "it cannot be approved")
		return
	}
	if err := g.audit(g.ctx, events.HostApproved, e.frozen, e.Caller, "by", rec.By); err != nil {
		g.finish(e, Failed, "the audit log cannot be written")
		return
	}
	if e.Kind == Access {
		g.grant(e, rec)
		return
	}
	if e.Kind == Exec && !rec.Until.IsZero() {
		// The grant has a record, which a person sees and can end. Without it the command is only executed once.
		if words, granted := e.words(rec); g.store.put(granted) == nil && g.audit(g.ctx, events.HostApproved, words.frozen, e.Caller, "by", rec.By) == nil {
			g.entries[words.ID] = words
			g.grant(words, granted)
		}
	}
	e.state = Approved
	g.workers.Go(func() { g.begin(e, rec.By) })
}

// words returns a request for the pattern that is the very words of an approved command, as approved with it.
func (e *entry) words(rec *Record) (*entry, *Record) {
	f := &frozen{Request: Request{
		ID: newID(), Kind: Access, Caller: e.Caller, Filed: rec.At, Expires: rec.Until, Argv: e.Argv, Program: e.Program, Reason: e.Reason, Lasting: true,
	}}
	granted := &Record{Request: f.Request, Owner: rec.Owner, State: Approved, Digest: f.Digest(), By: rec.By, At: rec.At, Until: rec.Until}
	return &entry{frozen: f, done: make(chan struct{}), state: Approved}, granted
}

// grant begins a grant. Its time is the person's, within the policy's.
func (g *Guard) grant(e *entry, rec *Record) {
	until := rec.At.Add(g.policy.grant)
	if !rec.Until.IsZero() && rec.Until.Before(until) {
		until = rec.Until
	}
	if err := g.store.change(e.ID, Approved, func(r *Record) { r.State, r.Until = Granted, until }); err != nil {
		g.finish(e, Failed, "its record cannot be written")
		return
	}
	e.state, e.until = Granted, until
	close(e.done)
}

// granted reports whether a grant covers a command. The program must be the one that the person saw.
func (g *Guard) granted(by Caller, argv []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.entries {
		if e.state != Granted || e.Caller.Namespace != by.Namespace || !time.Now().Before(e.until) || !(Pattern{e.Argv}).Match(argv) {
			continue
		}
		if is, err := program(argv[0], g.policy.path); err != nil || is.Path != e.Program.Path {
			continue
		}
		if f, err := e.Program.reopenProgram(); err == nil {
			f.Close()
			return true
		}
	}
	return false
}

// begin executes an approved request, once.
func (g *Guard) begin(e *entry, by string) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-g.ctx.Done():
		return
	}
	err := g.store.change(e.ID, Approved, func(r *Record) { r.State = Running })
	g.mu.Lock()
	if err != nil || e.state != Approved {
		g.finish(e, Failed, "its record was changed")
		g.mu.Unlock()
		return
	}
	e.state = Running
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(g.ctx, longest)
	defer cancel()
	res, err := g.perform(ctx, e.frozen, by)
	state, why := Done, ""
	if err != nil {
		state, why = Failed, err.Error()
	}
	g.store.change(e.ID, Running, func(r *Record) {
		r.State, r.Why = state, g.redacted(why)
		if res != nil && e.Kind == Exec {
			r.Exit = &res.Exit
		}
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	e.result = res
	g.finish(e, state, why)
}
