package hostcmd

import (
	"slices"
	"time"
)

// Accesses says what a caller may do.
type Accesses struct {
	On          bool
	Allow       []string // patterns of commands that run at once
	Directories []string // where they may start; the first is the default
	Read, Write []string // directories
	Ask         bool     // a person is asked about everything else
	Requests    []Asked
}

// Asked is a caller's request, in words that the caller knows: without what its paths lead to.
type Asked struct {
	ID      string
	State   State
	Kind    Kind
	What    string
	Asked   time.Time
	Expires time.Time // of a pending request or a grant
}

// Access returns what a caller may do, and its requests to this process, the oldest first.
func (g *Guard) Access(by Caller) Accesses {
	r := g.policy.of(by.Namespace)
	if r == nil {
		return Accesses{}
	}
	a := Accesses{On: true, Directories: r.dirs, Read: r.read, Write: r.write, Ask: r.ask}
	for _, p := range r.allow {
		a.Allow = append(a.Allow, p.String())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var own []*entry
	for _, e := range g.entries {
		if e.Caller.Namespace == by.Namespace {
			own = append(own, e)
		}
	}
	slices.SortFunc(own, func(a, b *entry) int { return a.Filed.Compare(b.Filed) })
	for _, e := range own {
		shown := Request{Kind: e.Kind, Argv: e.Argv, Given: e.Given, Size: e.Size, Sandbox: e.Sandbox, Dst: e.Dst}
		one := Asked{ID: e.ID, State: e.state, Kind: e.Kind, Asked: e.Filed, What: shown.Summary(), Expires: e.until}
		if e.state == Pending {
			one.Expires = e.Expires
		}
		a.Requests = append(a.Requests, one)
	}
	return a
}
