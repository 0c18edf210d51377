package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/given"
	"demesne/runner/protocol"
	"demesne/runner/userns"
	"demesne/runner/wire"
)

// Options says how to find a runner. The zero value is right for a program that
// lies beside demesne-runner.
type Options struct {
	Libexec string // directory of demesne-runner and demesne-init; empty: see findPrograms
	Door    runner.Door
	Network bool // the first sandbox is to have a way out: a runner that has to be started begins with that

	// Ask decides about a name that no rule of a sandbox with Egress.Ask speaks of. It
	// may take its time and is called for several at once. What nobody answered is denied, and asked
	// about the next time; an answer is a rule. nil: nobody answers.
	Ask func(runner.Question) (allow, answered bool)

	// Restart adds to the Spec of a sandbox that is about to be restarted what no file keeps:
	// Egress.Upstream and Egress.Secrets. Other changes count for nothing. nil: nothing is added.
	Restart func(*runner.Spec)
}

// Client is a connection to a runner. One-shot sandboxes made through it die with
// it. It is safe for concurrent use.
type Client struct {
	peer  *wire.Peer
	dir   *runDir
	root  bool
	init  string
	proxy string
	hello protocol.Hello
	young atomic.Bool    // we have started it, and not been greeted yet
	start []runner.Stage // of the runner, if we started it
	door  runner.Door
	ask   func(runner.Question) (allow, answered bool)
	again func(*runner.Spec)
	ends  endings
	types sync.Once // see learnTypes

	outIDs   func() (*os.File, error) // see outMaps
	siblings siblings
	retire   bool           // the runner is not to linger
	linger   *time.Duration // how long the runner stays after this caller; nil: [runner.DefaultLinger]
}

// Connect finds a live runner or starts one.
func Connect(ctx context.Context, o Options) (*Client, error) {
	progs, err := findPrograms(o.Libexec)
	if err != nil {
		return nil, err
	}
	root := realRoot()
	dir, err := openRunDir(progs, root)
	if err != nil {
		return nil, err
	}
	spares, err := sparesWanted()
	if err != nil {
		return nil, err
	}
	totals, err := ownTotals()
	if err != nil {
		return nil, err
	}
	linger, err := lingerWanted()
	if err != nil {
		return nil, err
	}
	mode := userns.ModeUser
	if root {
		mode = userns.ModeRoot
	}
	for {
		l := &launcher{dir: dir, progs: progs, root: root, spares: spares, totals: totals, mode: mode, network: o.Network}
		sock, err := l.connect(ctx)
		if err != nil {
			return nil, err
		}
		c := &Client{dir: dir, root: root, init: progs.init, proxy: progs.proxy, start: l.trace, door: o.Door, ask: o.Ask, again: o.Restart, linger: linger}
		c.outIDs = sync.OnceValues(func() (*os.File, error) { return holdUserns(progs.runner, outMaps()) })
		conn := wire.NewConn(sock)
		err = c.introduce(ctx, conn, sock, l)
		if errors.Is(err, io.EOF) { // it was on its way out when we came
			conn.Close()
			continue
		}
		if err != nil {
			conn.Close()
			return nil, wire.Errorf(wire.AsError(err).Code, "greet runner: %w", err)
		}
		c.serve(conn)
		return c, nil
	}
}

func (c *Client) serve(conn *wire.Conn) {
	c.peer = wire.NewPeer(conn, c.handle)
	go c.peer.Serve()
}

// introduce shows the runner who we are and takes its greeting, but for one that we have started: that one
// takes us, and what there is to know of it we know. It finds our first call there when it has come up.
func (c *Client) introduce(ctx context.Context, conn *wire.Conn, sock *os.File, l *launcher) error {
	ns, err := os.Open("/proc/self/ns/user")
	if err != nil {
		return err
	}
	defer ns.Close()
	var intro any // nothing to encode on the way of a run with defaults
	if c.door != runner.DoorCLI || l.totals != nil || c.linger != nil || c.retire {
		intro = protocol.Introduction{Door: c.door, Totals: l.totals, Linger: c.linger, Retire: c.retire}
	}
	err = conn.Send(wire.Message{Op: protocol.OpHello}, intro, wire.Files{protocol.FileUserNS: ns})
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	if l.started {
		c.young.Store(true)
		c.hello = protocol.Hello{PID: l.pid, Mode: l.mode}
		return nil
	}
	m, err := greeting(ctx, conn, sock)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Decode(&c.hello)
}

// readLog returns the last line a runner that died young left behind.
func readLog(d *runDir) string {
	f, err := os.Open(d.file(".log"))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	return firstLine(string(b))
}

func firstLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' {
			return s[:i]
		}
	}
	return s
}

// Done is closed when the runner has gone.
func (c *Client) Done() <-chan struct{} { return c.peer.Done() }

// Close ends the connection, and with it the one-shot sandboxes made through it.
func (c *Client) Close() error {
	c.closeSiblings()
	return c.peer.Close()
}

// handle takes the runner's events.
func (c *Client) handle(m *wire.Message) {
	defer m.Close()
	switch m.Op {
	case protocol.OpHello:
		c.young.Store(false)
	case protocol.OpAsk:
		go c.asked(m)
	case protocol.OpEnded:
		c.ends.told(m)
	}
}

// Create makes a sandbox. On an error nothing of it is left.
//
// With a Key there is one sandbox of the key: if there is one already it is opened, as by Open, and has
// the /out it had. An argument in Given that it was made with another value of is an error of [wire.CodeDiffers], and so is
// a secret that it lives without; with Replace it is removed instead, with its files, and Replaced says so. Callers
// that come with the same key at the same time get the same sandbox, or that error.
//
// One that stays, and has neither name nor key, goes half a minute after c was closed, unless it was opened or a
// command was started in it by then: its id was told to nobody.
func (c *Client) Create(ctx context.Context, spec runner.Spec) (*Sandbox, error) {
	if spec.Key != "" {
		if spec.Given == nil {
			spec.Given = runner.Arguments(spec)
		}
		// Before anything is opened for a sandbox that need not be made: its ports are listened on already.
		var found protocol.Created
		err := c.peer.Call(ctx, protocol.OpKey, spec, nil, &found)
		if err != nil || found.Existing {
			return c.existing(ctx, found.ID, err)
		}
	}
	files, err := c.sources(&spec)
	if err != nil {
		return nil, err
	}
	defer files.close()
	if spec.Lifetime == runner.Persistent && c.dir.kept != "" {
		// Where it cannot be, the runner finds that out too, and says so in the receipt.
		prepareOwned(c.dir.kept, c.hello.Mode == userns.ModeRoot)
	}
	var reply protocol.Created
	go c.types.Do(learnTypes)
	err = c.peer.Call(ctx, protocol.OpCreate, spec, files.byName, &reply)
	if err != nil {
		c.refused(files, spec, err)
		return nil, c.lost(err)
	}
	if reply.Existing {
		files.unlisten()
		given.Remove(c.dir.path, spec.Granted)
		return c.existing(ctx, reply.ID, nil)
	}
	trace := append(c.start[:len(c.start):len(c.start)], reply.Trace...)
	return &Sandbox{ID: reply.ID, Level: reply.Level, Out: spec.Out, Trace: trace, Replaced: reply.Replaced, client: c}, nil
}

// existing opens the sandbox of a key.
func (c *Client) existing(ctx context.Context, id string, err error) (*Sandbox, error) {
	if err != nil {
		return nil, c.lost(err)
	}
	s, err := c.Open(ctx, id)
	if err == nil {
		s.Existing = true
	}
	return s, err
}

// learnTypes has package json look at the types of what follows a client's first call, while that is being
// served.
func learnTypes() {
	wire.Learn(protocol.RunReply{}, protocol.ExecEnded{}, protocol.ExecRequest{})
}

// Open finds a sandbox by id or name. One that has lost its processes is started again over the
// files they left, with the same inputs: the error says so if one of them is gone.
func (c *Client) Open(ctx context.Context, idOrName string) (*Sandbox, error) {
	return c.of(ctx, idOrName).open(ctx, idOrName)
}

func (c *Client) open(ctx context.Context, idOrName string) (*Sandbox, error) {
	var reply protocol.Opened
	err := c.peer.Call(ctx, protocol.OpOpen, protocol.Target{Sandbox: idOrName}, nil, &reply)
	if hasCode(err, wire.CodeStopped) {
		reply, err = c.restart(ctx, idOrName)
	}
	if err != nil {
		return nil, c.lost(err)
	}
	return &Sandbox{ID: reply.ID, Level: reply.Level, Out: reply.Out, Restarted: reply.Restarted, Lacks: reply.Lacks, client: c}, nil
}

// Inspect tells of a sandbox, live or recently ended.
func (c *Client) Inspect(ctx context.Context, idOrName string) (*runner.Info, error) {
	return c.of(ctx, idOrName).inspect(ctx, idOrName)
}

func (c *Client) inspect(ctx context.Context, idOrName string) (*runner.Info, error) {
	var info runner.Info
	if err := c.peer.Call(ctx, protocol.OpInspect, protocol.Target{Sandbox: idOrName}, nil, &info); err != nil {
		return nil, c.lost(err)
	}
	return &info, nil
}

// List tells of all sandboxes that live or are kept, the oldest first.
func (c *Client) List(ctx context.Context) ([]runner.Info, error) {
	var infos []runner.Info
	if err := c.peer.Call(ctx, protocol.OpList, nil, nil, &infos); err != nil {
		return nil, c.lost(err)
	}
	return c.listed(ctx, infos), nil
}

// Count is how many of List's are to stay, whether their processes live or not. Snapshots are not among them.
func (c *Client) Count(ctx context.Context) (int, error) {
	var n int
	return n, c.lost(c.peer.Call(ctx, protocol.OpCount, nil, nil, &n))
}

// Check probes what this machine lets a sandbox have.
func (c *Client) Check(ctx context.Context) ([]runner.Probe, error) {
	var probes []runner.Probe
	return probes, c.lost(c.peer.Call(ctx, protocol.OpCheck, nil, nil, &probes))
}

// Stop ends a sandbox and everything in it, and removes its files.
func (c *Client) Stop(ctx context.Context, idOrName string) error {
	c = c.of(ctx, idOrName)
	return c.lost(c.peer.Call(ctx, protocol.OpStop, protocol.Target{Sandbox: idOrName}, nil, nil))
}

// lost names the failure of a connection for what it is.
func (c *Client) lost(err error) error {
	if !isGone(err) {
		return err
	}
	if text := readLog(c.dir); text != "" && c.young.Load() {
		return fmt.Errorf("start runner: %s", text)
	}
	return wire.Errorf(wire.CodeGone, "talk to runner: it ended")
}

func isGone(err error) bool {
	return errors.Is(err, wire.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed)
}

// Sandbox is a live sandbox.
type Sandbox struct {
	ID      string
	Level   runner.Level
	Receipt *runner.Receipt // nil until [Sandbox.Account]
	Trace   []runner.Stage  // of its making; nil unless this client made it
	Out     string

	// Restarted says that the sandbox had lost its processes and was started over its files, and that no command's
	// result has said so since. Copies and [Sandbox.Files] leave it to the next command.
	Restarted bool
	Lacks     []string // secrets that it was restarted without, by name, likewise
	Existing  bool     // it was there when its key was asked for
	Replaced  bool     // another one of its key was removed for it

	client  *Client
	account account
}

// Account fetches the receipt. Nobody else pays for it: to encode and decode it takes as
// long as all other messages of a run. Results have it by [runner.Command.Account].
func (s *Sandbox) Account(ctx context.Context) error {
	if s.Receipt != nil {
		return nil
	}
	info, err := s.client.Inspect(ctx, s.ID)
	if err == nil {
		s.Receipt = info.Receipt
	}
	return err
}

// Stop ends the sandbox and everything in it, and removes its files.
func (s *Sandbox) Stop(ctx context.Context) error { return s.client.Stop(ctx, s.ID) }
