package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/agents"
	"demesne/agents/workspace"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/text"
	"demesne/mcp/hosttools"
	"demesne/runner"
	"demesne/session"
)

// node is one run of an agent.
type node struct {
	tree   *Tree
	parent *node // nil: the first agent
	name   string
	depth  int
	id     string
	req    agents.Request
	agent  *agents.Agent
	image  imageref.Ref // see imageOf
	dirs   *dirs
	places *agents.Places       // where its sandbox has them; nil: at its own paths
	talk   *agents.Conversation // nil: a child
	images []string             // see [agents.Task]
	budget *budget
	tools  *hosttools.Set // nil: none
	asked  requests
	began  time.Time

	made func() // called when the sandbox exists; may be nil

	ctx    context.Context // ends with the run's reason
	cancel context.CancelCauseFunc

	names     names
	jobs      registry
	sandboxes sandboxes

	mu       sync.Mutex
	children []*child // in order of their creation
	exist    bool
	closed   bool           // no further child may start
	calls    sync.WaitGroup // of children
	ended    agents.Results // once it has ended
}

// child is a parent's record of a child.
type child struct {
	name, tool, id, out string
	dir                 *os.File       // out
	at                  *agents.Places // of its parent
	node                *node          // nil: a command or a sandbox
	ended               bool
	exitCode            int
}

// end ends the run and all its descendants, with a reason. The first reason stays.
func (n *node) end(why error) { n.cancel(why) }

// path returns the names that lead to n.
func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return strings.TrimPrefix(n.parent.path()+"/"+n.name, "/")
}

func (n *node) show(what Notice) {
	if n.tree.Show == nil {
		return
	}
	what.Child, what.Time = n.path(), time.Now()
	n.tree.Show(what)
}

func (n *node) note(format string, a ...any) {
	n.show(Notice{Event: agents.Event{Kind: NoticeNote, Text: text.SafeLine(fmt.Sprintf(format, a...))}})
}

// run runs the agent to its end, and ends its children before it returns. An error may come with a result.
func (n *node) run(w session.Callbacks) (*agents.Result, error) {
	n.tree.alive.Add(1)
	defer n.tree.alive.Add(-1)
	defer n.dirs.close()
	defer n.spend()
	defer n.cancel(nil)
	if n.req.Timeout > 0 {
		late := time.AfterFunc(n.req.Timeout, func() { n.end(errTime(n.req.Timeout)) })
		defer late.Stop()
	}
	if n.tools = n.openHostTools(); n.tools != nil {
		defer n.tools.Close()
	}
	a, err := n.prepare()
	if err != nil {
		return nil, err
	}
	if n.atUsers() {
		defer n.tree.work.Leave(n.dirs.start(), a.launch.Context)
	}
	if err := n.openGates(a.launch); err != nil {
		n.closeGates()
		return nil, err
	}
	n.show(Notice{Event: agents.Event{Kind: NoticeStarted, Model: n.req.Model}, Output: n.dirs.out})
	stopped := n.watchUsage()
	done, err := n.tree.Sessions.Run(n.ctx, n.createOptions(a.launch), a.options(), a.callbacks(w))
	err = n.agent.Provider.Explain(err, n.image.Given, a.launch.Argv[0])
	why := context.Cause(n.ctx) // nil: the program ended by itself
	n.endChildren()
	stopped()
	n.closeGates()
	return n.settle(a, done, err, why)
}

// errParent is the cause with which the children end when their parent has.
var errParent = errors.New("the agent that started it has ended")

// createOptions describes the sandbox of an agent.
func (n *node) createOptions(l *agents.Launch) session.CreateOptions {
	spec := runner.Spec{Workspace: n.dirs.workspace, Limits: n.req.Limits, User: l.User}
	spec.Mounts = slices.Concat(l.Mounts, n.protected(), []runner.Mount{{Source: n.dirs.home, Target: l.HomeDir}})
	if !n.req.Research {
		spec.Inputs = append(spec.Inputs, n.req.Inputs...)
		spec.Mounts = append(spec.Mounts, n.siblings(len(spec.Mounts))...)
	}
	spec.Inputs = append(spec.Inputs, runner.Input{Path: n.dirs.config, Name: path.Base(agents.ConfigDir)})
	c := session.CreateOptions{Spec: spec, Image: n.image, Out: n.dirs.out, OutInside: n.parent != nil}
	if n.req.Stored {
		c.Pull = images.PullNever
	}
	c.Egress = session.Egress{Mode: n.req.Egress, Allow: n.req.Domains, Routes: n.routes(l)}
	if n.tree.Serve != nil {
		c.Egress.Listen = append(c.Egress.Listen, nestedPort)
	}
	if n.tools != nil {
		c.Egress.Listen = append(c.Egress.Listen, hostToolsPort)
	}
	if n.req.Research {
		// The only inputs are the agent's own task and program.
		c.Egress.Mode, c.Egress.OpenWithInputs = runner.OpenEgress, true
	}
	return c
}

// atUsers reports whether the workspace of n is a directory of the user. The workspace of a research child is not.
func (n *node) atUsers() bool { return n.tree.work != nil && n.dirs.workspace == n.tree.work.Dir }

// protected returns the mounts that every sandbox with the workspace of n must have.
func (n *node) protected() []runner.Mount {
	if !n.atUsers() {
		return nil
	}
	return n.mounts(n.tree.work.Mounts)
}

// mounts returns mounts where the sandboxes of n have them.
func (n *node) mounts(all []runner.Mount) []runner.Mount {
	if n.places == nil {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Target = all[i].Source
	}
	return all
}

// findPlaces finds out whether the sandbox of n has its own paths, and sets those that it has instead.
func (n *node) findPlaces(ctx context.Context) error {
	if n.image.Kind != "" {
		return nil
	}
	own, err := n.tree.Sessions.OwnPaths(ctx)
	if own || err != nil {
		return err
	}
	d := n.dirs
	n.places = &agents.Places{In: "$DEMESNE_IN", Out: d.out, Workspace: d.workspace, Home: d.home, Config: d.config}
	if n.parent != nil {
		n.places.Previous = filepath.Join(n.parent.dirs.out, childDir)
	}
	return nil
}

// siblings mounts the outputs of the parent's other children that have ended, beside other mounts. Research has no
// inputs, so these are not among them.
func (n *node) siblings(others int) []runner.Mount {
	if n.parent == nil || n.req.Research {
		return nil
	}
	return n.parent.previous(others)
}

// routes returns the routes of a launch, with a record of the requests of each, and with its gate.
func (n *node) routes(l *agents.Launch) []runner.Route {
	all := append([]runner.Route(nil), l.Routes...)
	for i := range all {
		all[i].Record = filepath.Join(n.dirs.sidecar, fmt.Sprintf("requests-%d.jsonl", all[i].Port))
		var g *gate
		if i < len(n.asked.gates) {
			g = n.asked.gates[i]
			all[i].Gate = g.far
		}
		n.asked.watch(all[i].Record, g)
	}
	return all
}

// openGates makes the gates of a launch's routes, if a budget has a bound.
func (n *node) openGates(l *agents.Launch) error {
	if any, _, _ := n.budget.bounds(); !any {
		return nil
	}
	for range l.Routes {
		g, err := n.newGate()
		if err != nil {
			return fmt.Errorf("bound requests: %w", err)
		}
		n.asked.gates = append(n.asked.gates, g)
	}
	return nil
}

func (n *node) closeGates() {
	for _, g := range n.asked.gates {
		g.close()
	}
}

// Ports on a sandbox's loopback: see also the routes of package agents.
const nestedPort = 8089

// task is what the agent is to do, as package agents explains it to the program.
func (n *node) task() agents.Task {
	r := n.req
	t := agents.Task{
		Prompt: r.Prompt, Preamble: r.Preamble, OutputPath: r.OutputPath, OutputFormat: r.OutputFormat,
		SuccessCriteria: r.SuccessCriteria, Research: r.Research, Project: n.atUsers(), Egress: r.Egress, Dir: path.Join("/workspace", workspace.Starts, n.dirs.start()),
		Images: n.images, Previous: len(n.siblings(0)) > 0, Token: agents.NewToken(), Places: n.places,
	}
	if !r.Research {
		for _, in := range r.Inputs {
			t.Inputs = append(t.Inputs, in.Name)
		}
	}
	if n.tree.Serve != nil && n.agent.Provider.Servers.Entry != "" { // a program without a list of servers has no client
		t.Children = true
		t.Servers = append(t.Servers, agents.Server{Name: "demesne", Port: nestedPort, Path: "/mcp"})
	}
	servers, generated := n.toolServers()
	t.Servers, t.Generated = append(t.Servers, servers...), generated
	return t
}

// prepare plans the execution of the program, and writes the files that it reads.
func (n *node) prepare() (*attempts, error) {
	a := &attempts{node: n, task: n.task(), count: 1}
	headers, due, err := n.agent.Renew(n.ctx)
	if err != nil {
		return nil, err
	}
	a.launch, a.due = n.agent.Headless(a.task), due
	a.renewal = &agents.Renewal{Agent: n.agent, Sessions: n.tree.Sessions, Failed: func(err error) { n.note("%v", err) }}
	a.launch.Authorize(headers)
	if n.talk != nil && n.talk.Session != "" {
		if a.launch.Argv, err = n.agent.FollowUp(a.task, n.talk.Session); err != nil {
			return nil, err
		}
	}
	if err := n.furnish(a.launch); err != nil {
		return nil, err
	}
	if a.transcript, err = logged(n.dirs.sidecar, fileTranscript); err == nil {
		a.stderr, err = logged(n.dirs.sidecar, fileStderr)
	}
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	a.events = agents.NewTranscript(n.agent.Provider.Format, func(e agents.Event) {
		n.remember(e)
		n.show(Notice{Event: e})
	})
	a.out = io.MultiWriter(a.transcript, a.events)
	return a, nil
}

// remember records the session of the first agent, which a follow-up resumes.
func (n *node) remember(e agents.Event) {
	id := n.agent.Provider.Keeps(e)
	if n.talk == nil || id == "" || n.dirs.stays && id == n.talk.Session {
		return
	}
	n.talk.Session = id
	if err := n.talk.Write(n.dirs.first); err != nil {
		n.note("%v", err)
		return
	}
	n.dirs.stays = true
}

// spend adds what the first agent and its children used to the record of the conversation.
func (n *node) spend() {
	if n.talk == nil {
		return
	}
	used := n.budget.total()
	n.talk.Cost, n.talk.Tokens = n.talk.Cost+used.cost, n.talk.Tokens+used.tokens
	if err := n.talk.Write(n.dirs.first); err != nil {
		n.note("%v", err)
	}
}

// furnish writes the files that the program finds in its sandbox.
func (n *node) furnish(l *agents.Launch) error {
	if err := fill(n.dirs.config, l.Config); err != nil {
		return err
	}
	home, err := os.OpenRoot(n.dirs.home)
	if err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	defer home.Close()
	if err := l.Seed(home); err != nil {
		return err
	}
	return workspace.MakeStart(n.dirs.workspace, n.dirs.start(), l.Context, n.places.At(agents.ConfigDir))
}

// watchUsage reads the records of requests until the returned function is called, which reads the rest.
func (n *node) watchUsage() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n.readUsage()
			select {
			case <-end:
				n.readUsage()
				return
			case <-time.After(usageEvery):
			}
		}
	}()
	return func() { close(end); <-ended }
}

// readUsage counts new requests, in the files, the budgets and the view.
func (n *node) readUsage() {
	before := n.asked.fault()
	all := n.asked.read()
	if fault := n.asked.fault(); before == "" && fault != "" { // the program may try again for minutes
		n.note("%s", fault)
	}
	for _, c := range all {
		if c.gate == nil || !c.gate.release(c.number, c.amount) {
			n.budget.charge(c.amount)
		}
	}
	if len(all) == 0 {
		return
	}
	if err := n.writeUsage(); err != nil {
		n.note("%v", err)
	}
	total := n.budget.total()
	n.show(Notice{Event: agents.Event{Kind: NoticeUsage}, Total: total.cost, Turns: total.turns})
}

// endChildren ends all children, and returns when their sandboxes are removed. No further child can start.
func (n *node) endChildren() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.end(errParent)
	n.jobs.stopAll(errParent)
	n.sandboxes.removeAll(n.tree.Sessions)
	n.calls.Wait()
}

// appear records that the sandbox exists, and serves its MCP clients.
func (n *node) appear(sb *session.Sandbox) {
	n.mu.Lock()
	n.exist = true
	n.mu.Unlock()
	if n.made != nil {
		n.made()
	}
	n.serveTools(sb)
	if n.tree.Serve == nil {
		return
	}
	l, err := sb.Listener(nestedPort)
	if err != nil {
		n.note("serve children: %v", err)
		return
	}
	stop := context.AfterFunc(n.ctx, func() { l.Close() })
	go func() {
		defer stop()
		if err := n.tree.Serve(n.ctx, l, Parent{children{n}, n.req.Image, n.agent.Model, n.offered()}); err != nil && n.ctx.Err() == nil {
			n.note("serve children: %v", err)
		}
	}()
}

// exists reports whether the sandbox was made.
func (n *node) exists() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exist
}
