package tree

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"demesne/agents"
	"demesne/agents/workspace"
	"demesne/images/imageref"
	"demesne/mcp"
	"demesne/runner"
	"demesne/session"
)

// Tree is the first agent with all its descendants. They live in this one process: so the end of a parent ends its
// children, a bound holds for a whole subtree, and nothing that a sandbox sends can name another caller.
type Tree struct {
	Sessions *session.Service
	Choose   func(tool string, r agents.Request) (*agents.Agent, error)
	Research mcp.Research // ask means on: the starter of the first agent has asked

	AllowResearch bool // also agents that do not reach everything may start research
	Private       bool // the first agent has files of the user, or may have

	// Serve answers MCP requests from inside the sandbox of an agent, until ctx ends. nil: agents cannot have children.
	Serve func(ctx context.Context, l net.Listener, p Parent) error
	Tools HostTools
	// Show receives what happens, for a person or a log. It is called concurrently. nil: nothing does.
	Show func(Notice)

	alive atomic.Int32         // agents that run
	work  *workspace.Workspace // of the user; nil: one of the run
}

// Parent is an agent that may have children: the operations of their tools, and what they inherit.
type Parent struct {
	mcp.Service
	Image, Model string
	Research     mcp.Research // off, or the zero value
}

// Notice is one thing that happened to one agent of a tree.
type Notice struct {
	Child string    `json:"child,omitempty"` // the names that lead to the agent, separated by slashes; empty: the first one
	Time  time.Time `json:"ts"`
	agents.Event

	Output string `json:"output_dir,omitempty"`
	// Conversation is what a follow-up names to continue a run that has ended; empty: it left no session.
	Conversation string `json:"conversation,omitempty"`

	Until    time.Time `json:"until,omitzero"`
	Total    float64   `json:"total_usage_usd,omitempty"` // so far, with all descendants
	Turns    int       `json:"turns,omitempty"`
	ExitCode *int      `json:"exit_code,omitempty"`
}

// The kinds of notices in addition to package agents' kinds.
const (
	NoticeStarted = "started" // Output, Model
	NoticeUsage   = "usage"   // Total and Turns
	NoticeWaiting = "waiting" // Until, and in Text for what
	NoticeNote    = "note"    // Text
	NoticeEnded   = "ended"   // ExitCode and Total, and in Text the reason
)

// Run runs the first agent. dir is its directory, which it closes. out is its output directory; empty: one in dir.
func (t *Tree) Run(ctx context.Context, r agents.Request, dir *session.Directory, out string) (*agents.Result, error) {
	defer dir.Close()
	n, err := t.first(ctx, r, dir, out)
	if err != nil {
		for _, name := range []string{"config", "home", "out", "sidecar-results", "workspace"} { // no sandbox wrote there
			os.RemoveAll(filepath.Join(dir.Path, name))
		}
		dir.Undo()
		return nil, err
	}
	defer t.work.Review(n.note)
	return n.run(session.Callbacks{})
}

// first prepares the first agent.
func (t *Tree) first(ctx context.Context, r agents.Request, dir *session.Directory, out string) (_ *node, err error) {
	if t.work, err = workspace.Open(r.Workspace, dir.Path); err != nil {
		return nil, err
	}
	talk, d := &agents.Conversation{Private: t.Private}, &dirs{base: dir.Path, out: out}
	if d.first = d.base; r.Continues != "" {
		d.first = filepath.Join(filepath.Dir(d.base), r.Continues)
		if talk, err = agents.ReadConversation(d.first); err != nil {
			return nil, fmt.Errorf("continue %q: %w", r.Continues, err)
		}
		d.out, d.stays, t.Private = talk.Out, true, t.Private || talk.Private
	}
	if t.work != nil {
		d.workspace = t.work.Dir
	}
	bounded, err := talk.Left(r)
	if err != nil {
		return nil, err
	}
	n, err := t.newNode(ctx, nil, bounded, d, dir.Name())
	if err != nil {
		return nil, err
	}
	n.images = talk.Images(r)
	talk.Agent, talk.Out, talk.Request = n.agent.Provider.Name, d.out, r
	talk.Request.Model, talk.Request.Prompt, talk.Request.Dir = n.agent.Model, "", ""
	n.talk = talk
	return n, talk.Write(d.first)
}

// newNode prepares an agent. Its context ends with ctx. A child without a model or an image has its parent's.
func (t *Tree) newNode(ctx context.Context, parent *node, r agents.Request, d *dirs, id string) (*node, error) {
	if r.Model == "" && parent != nil {
		r.Model = parent.agent.Model
	}
	if r.Image == "" && parent != nil {
		r.Image, r.Stored = parent.req.Image, parent.req.Stored
	}
	n := &node{tree: t, parent: parent, name: r.Name, id: id, req: r, dirs: d, began: time.Now()}
	var above *budget
	if parent != nil {
		n.depth, above = parent.depth+1, parent.budget
	}
	n.budget = newBudget(above, amount{r.MaxCost, r.MaxTokens, r.MaxTurns}, n.end)
	var err error
	if n.agent, err = t.Choose(r.Tool(), r); err != nil {
		return nil, err
	}
	if n.image, err = imageOf(n.agent, r); err != nil {
		return nil, err
	}
	n.asked.meter = agents.NewMeter(n.agent.Provider.API.Usage, n.agent.Provider.Prices...)
	if err := n.mayBound(); err != nil {
		return nil, err
	}
	if err := d.make(); err != nil {
		return nil, err
	}
	if err := n.findPlaces(ctx); err != nil {
		return nil, err
	}
	n.ctx, n.cancel = context.WithCancelCause(ctx)
	return n, nil
}

// mayBound returns why the bounds of an agent cannot hold.
func (n *node) mayBound() error {
	if _, cost, _ := n.budget.bounds(); cost && !n.asked.meter.Priced(n.agent.Inner()) {
		return errUnpriced(n.agent.Inner())
	}
	return nil
}

// imageOf returns the image that has the agent's program; zero: the host's files and installation.
func imageOf(a *agents.Agent, r agents.Request) (imageref.Ref, error) {
	name := cmp.Or(r.Image, a.Image())
	if name == "" || name == string(imageref.Host) {
		return imageref.Ref{}, nil
	}
	ref, err := session.ParseImage(name)
	if err != nil {
		err = fmt.Errorf("image %q: %w", name, err)
	}
	return ref, err
}

// maxPrevious bounds the siblings whose output a sandbox sees, with its other mounts: each takes two descriptors of one
// message to the runner.
const maxPrevious = 64

// previous returns the outputs of children of n that have ended, for a new one that has other mounts: the latest, as far
// as there is room.
func (n *node) previous(others int) (all []runner.Mount) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.children {
		if c.ended {
			all = append(all, runner.Mount{Source: c.out, Target: PreviousDir + "/" + c.name, ReadOnly: true})
		}
	}
	all = n.mounts(all)
	return all[max(0, len(all)-max(0, maxPrevious-others)):]
}

// PreviousDir has the outputs of siblings that have ended, in a sandbox.
const PreviousDir = "/in/previous-jobs"

// ExitFailed is the exit code of a run that could not be completed.
const ExitFailed = 125

// logged writes to a file of the sidecar directory, for a stream that is too long for memory.
func logged(dir, name string) (*record, error) {
	f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return &record{f: f}, err
}

// A record is a file with a stream of a program. Write never fails, because a full disk must neither end an agent nor hide
// its answer.
type record struct {
	f    *os.File
	lost error // of the first write that failed
}

func (r *record) Write(b []byte) (int, error) {
	if _, err := r.f.Write(b); err != nil {
		r.lost = cmp.Or(r.lost, err)
	}
	return len(b), nil
}
