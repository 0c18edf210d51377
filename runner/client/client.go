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
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// Options configures [Connect]. The zero value suits a program in the same directory as demesne-runner.
type Options struct {
	Libexec  string // directory of demesne-runner and demesne-init; empty: see findPrograms
	Frontend runner.Frontend
	Quota    runner.Quota
	Network  bool // a network is likely to be needed: a runner that must be started prepares it at once

	// Ask decides about a name that no rule covers, for a sandbox with Egress.Ask. It may block, and is called
	// concurrently. An answer becomes a rule. A name without an answer is denied now and asked about again next time.
	// nil: nothing is answered.
	Ask func(runner.Question) (allow, answered bool)

	// Restart adds the values that no file keeps to the Spec of a sandbox that is about to be restarted:
	// Egress.Upstream, Egress.Trust, Egress.Secrets, and the Token and Header of each of Egress.Routes. Other changes are ignored. nil:
	// nothing is added. A route without its Token then answers every request with 401.
	Restart func(*runner.Spec)
}

// Client is a connection to a runner. Closing it ends the one-shot sandboxes made through it. It is safe for
// concurrent use.
type Client struct {
	peer     *ipc.Peer
	dir      *runDir
	root     bool
	init     string
	proxy    string
	hello    api.Hello
	young    atomic.Bool    // this client started the runner and has not been greeted yet
	start    []runner.Stage // stages of the runner's start, if this client started it
	frontend runner.Frontend
	ask      func(runner.Question) (allow, answered bool)
	again    func(*runner.Spec)
	ends     endings
	serving  sync.WaitGroup // servers that end with this client's sandboxes

	outMap   *outMap // real root's
	siblings siblings
	retire   bool           // the runner is not to linger
	linger   *time.Duration // how long the runner stays after this client; nil: [runner.DefaultLinger]
	totals   *runner.Limits // see [EnvTotalMemory]
	quota    *runner.Quota  // nil: the zero Quota
}

// Connect connects to a live runner, or starts one.
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
	spares, err := poolSize()
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
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		l := &launcher{dir: dir, progs: progs, root: root, poolSize: spares, mode: mode, network: o.Network}
		sock, err := l.connect(ctx)
		if err != nil {
			return nil, err
		}
		c := &Client{dir: l.dir, root: root, init: progs.init, proxy: progs.proxy, start: l.trace, frontend: o.Frontend, ask: o.Ask, again: o.Restart, linger: linger, totals: totals, outMap: &outMap{program: progs.runner}}
		if o.Quota != (runner.Quota{}) {
			c.quota = &o.Quota
		}
		conn := ipc.NewConn(sock)
		err = c.introduce(ctx, conn, sock, l)
		if errors.Is(err, io.EOF) && time.Since(began) < greetPatience { // the runner was already ending, or has no descriptors
			conn.Close()
			continue
		}
		if errors.Is(err, io.EOF) {
			err = &ipc.Error{Code: ipc.CodeBusy, Text: fmt.Sprintf("it has closed every connection for %v", greetPatience), Hint: "remove sandboxes or raise ulimit -n: it may have no descriptors left"}
		}
		if err != nil {
			conn.Close()
			return nil, ipc.Errorf(ipc.AsError(err).Code, "greet runner: %w", err)
		}
		c.peer = ipc.NewPeer(conn, c.handle)
		go c.peer.Serve()
		return c, nil
	}
}

// introduce identifies the client to the runner and reads its greeting. It does not wait for the greeting of a runner
// that this client started, whose content is already known. That runner accepts the connection, and finds the first
// call when it is ready.
func (c *Client) introduce(ctx context.Context, conn *ipc.Conn, sock *os.File, l *launcher) error {
	ns, err := openAt("/proc/self/ns/user")
	if err != nil {
		return err
	}
	defer ns.Close()
	var intro any // nil for the default options, which saves encoding
	if c.frontend != runner.FrontendCLI || c.totals != nil || c.quota != nil || c.linger != nil || c.retire {
		intro = api.Introduction{Frontend: c.frontend, Totals: c.totals, Quota: c.quota, Linger: c.linger, Retire: c.retire}
	}
	err = conn.Send(ipc.Message{Op: api.OpHello}, intro, ipc.Files{api.FileUserNS: ns})
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	if l.started {
		c.young.Store(true)
		c.hello = api.Hello{PID: l.pid, Mode: l.mode}
		return nil
	}
	m, err := greeting(ctx, conn, sock)
	if err != nil {
		return err
	}
	defer m.Close()
	c.outMap.accept(m.File(api.FileOutMap), ns)
	return m.Decode(&c.hello)
}

// readLog returns the first line in the log of a runner that died early.
func (d *runDir) readLog() string {
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

// Done returns a channel that is closed when the runner has ended.
func (c *Client) Done() <-chan struct{} { return c.peer.Done() }

// Close closes the connection, which ends the one-shot sandboxes made through it.
func (c *Client) Close() error {
	c.closeSiblings()
	err := c.peer.Close()
	c.serving.Wait()
	return err
}

// handle processes the runner's events.
func (c *Client) handle(m *ipc.Message) {
	defer m.Close()
	switch m.Op {
	case api.OpHello:
		c.young.Store(false)
	case api.OpAsk:
		go c.asked(m)
	case api.OpEnded:
		c.ends.told(m)
	}
}

// Create makes a sandbox. On an error nothing remains.
//
// At most one sandbox exists per Key. If one exists, Create opens it like Open, and it keeps its /out. If it was made
// with another value of an argument in Given, or lacks a secret, the error has [ipc.CodeDiffers]. With Replace,
// Create instead removes it with its files, and sets Replaced. Concurrent callers with the same key get the same
// sandbox, or that error.
//
// A persistent sandbox with neither name nor key is removed 30 s after c is closed, unless it was opened or ran a
// command. Its creator may have died before it could report the id.
func (c *Client) Create(ctx context.Context, spec runner.Spec) (*Sandbox, error) {
	if spec.Key != "" {
		if spec.Given == nil {
			spec.Given = spec.Arguments()
		}
		// Look for the key before opening the sources: an existing sandbox already listens on its published ports.
		var found api.Created
		err := c.peer.Call(ctx, api.OpKey, spec, nil, &found)
		if err != nil || found.Existing {
			return existing(ctx, c, found.ID, err)
		}
	}
	files, err := c.sources(&spec)
	if err != nil {
		return nil, err
	}
	defer files.close()
	if spec.Lifetime == runner.Persistent && spec.Slot == "" { // Reserve makes it too
		c.dir.makeSandboxRoot(c.hello.Mode)
	}
	var reply api.Created
	m, err := c.peer.CallMessage(ctx, api.OpCreate, spec, files.byName)
	if err == nil {
		defer m.Close()
		err = m.Decode(&reply)
	}
	if err != nil {
		files.refused(spec, err)
		return nil, c.lost(err)
	}
	if reply.Existing {
		files.unlisten()
		grants.Remove(c.dir.path, spec.Granted)
		return existing(ctx, c, reply.ID, nil)
	}
	trace := append(c.start[:len(c.start):len(c.start)], reply.Trace...)
	s := &Sandbox{ID: reply.ID, Level: reply.Level, Out: spec.Out, Trace: trace, Replaced: reply.Replaced, Unmapped: reply.Unmapped, Made: reply.Info, client: c}
	s.listeners.take(m, listens(spec.Egress))
	return s, nil
}

// Reserve takes a place among the persistent sandboxes that the user may have: see [Options].Quota. Without a free place
// its error has [ipc.CodeTooMany]. The place belongs to the Create call whose Spec names it as Slot. If that call fails or
// finds a sandbox, its caller must call release, which otherwise does nothing; the end of c releases the place too. slot is
// empty if the call for this key needs no place.
func (c *Client) Reserve(ctx context.Context, key string) (slot string, release func(), err error) {
	c.dir.makeSandboxRoot(c.hello.Mode)
	var reply api.Slot
	if err = c.peer.Call(ctx, api.OpReserve, api.ReserveRequest{Key: key}, nil, &reply); err != nil || reply.Slot == "" {
		return "", func() {}, c.lost(err)
	}
	return reply.Slot, func() {
		ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
		defer cancel()
		c.peer.Call(ctx, api.OpRelease, reply, nil, nil)
	}, nil
}

// existing opens the sandbox that has the key.
func existing(ctx context.Context, c *Client, id string, err error) (*Sandbox, error) {
	if err != nil {
		return nil, c.lost(err)
	}
	s, err := c.Open(ctx, id)
	if err == nil {
		s.Existing = true
	}
	return s, err
}

// Open opens a sandbox by id or name. If the sandbox has lost its processes, Open restarts it over its files, with
// the same inputs. It fails if one of those is missing.
func (c *Client) Open(ctx context.Context, idOrName string) (*Sandbox, error) {
	if c.knownHome(idOrName) == nil {
		if s, err := c.opened(ctx, idOrName); err == nil { // live in c's own runner, and so in no other
			return s, nil
		}
	}
	return c.of(ctx, idOrName).open(ctx, idOrName)
}

// opened opens a sandbox that is live.
func (c *Client) opened(ctx context.Context, idOrName string) (*Sandbox, error) {
	var reply api.Opened
	err := c.peer.Call(ctx, api.OpOpen, api.Target{Sandbox: idOrName}, nil, &reply)
	return c.sandbox(&reply), err
}

func (c *Client) sandbox(o *api.Opened) *Sandbox {
	return &Sandbox{ID: o.ID, Level: o.Level, Out: o.Out, Restarted: o.Restarted, MissingSecrets: o.MissingSecrets, Unserved: unserved(o.Served), client: c}
}

func (c *Client) open(ctx context.Context, idOrName string) (*Sandbox, error) {
	s, err := c.opened(ctx, idOrName)
	if hasCode(err, ipc.CodeStopped) {
		var reply api.Opened
		reply, err = c.restart(ctx, idOrName)
		s = c.sandbox(&reply)
	}
	if err != nil {
		return nil, c.lost(err)
	}
	return s, nil
}

// Inspect describes a live or recently ended sandbox.
func (c *Client) Inspect(ctx context.Context, idOrName string) (*runner.Info, error) {
	if c.knownHome(idOrName) == nil {
		if info, err := c.inspect(ctx, idOrName); err == nil && info.PID != 0 { // as in Open
			return info, nil
		}
	}
	return c.of(ctx, idOrName).inspect(ctx, idOrName)
}

func (c *Client) inspect(ctx context.Context, idOrName string) (*runner.Info, error) {
	var info runner.Info
	if err := c.peer.Call(ctx, api.OpInspect, api.Target{Sandbox: idOrName}, nil, &info); err != nil {
		return nil, c.lost(err)
	}
	return &info, nil
}

// List returns all live and persistent sandboxes, the oldest first.
func (c *Client) List(ctx context.Context) ([]runner.Info, error) {
	infos, err := listOf(ctx, c.peer)
	if err != nil {
		return nil, c.lost(err)
	}
	return c.listed(ctx, infos), nil
}

// listOf returns what the runner of peer lists, which may take several calls.
func listOf(ctx context.Context, peer *ipc.Peer) (infos []runner.Info, err error) {
	for {
		var next api.ListRequest
		if n := len(infos); n > 0 {
			next = api.ListRequest{Created: infos[n-1].Created, After: infos[n-1].ID}
		}
		var page []runner.Info
		if err := peer.Call(ctx, api.OpList, next, nil, &page); err != nil {
			return nil, err
		}
		if len(page) == 0 || !next.Follows(&page[0]) { // a runner of an earlier version lists all at each call
			return infos, nil
		}
		infos = append(infos, page...)
	}
}

// Check tests which mechanisms this machine supports for sandboxes.
func (c *Client) Check(ctx context.Context) ([]runner.Probe, error) {
	var probes []runner.Probe
	return probes, c.lost(c.peer.Call(ctx, api.OpCheck, nil, nil, &probes))
}

// Remove ends all processes of a sandbox and removes its files.
func (c *Client) Remove(ctx context.Context, idOrName string) error {
	return c.stop(ctx, api.Target{Sandbox: idOrName})
}

// lost converts the failure of a connection to an error that names its cause.
func (c *Client) lost(err error) error {
	if !isGone(err) {
		return err
	}
	if text := c.dir.readLog(); text != "" && c.young.Load() {
		return fmt.Errorf("start runner: %s", text)
	}
	return ipc.Errorf(ipc.CodeGone, "talk to runner: it ended")
}

func isGone(err error) bool {
	return errors.Is(err, ipc.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed)
}

// Sandbox is a live sandbox.
type Sandbox struct {
	ID      string
	Level   runner.Level
	Receipt *runner.Receipt // nil until [Sandbox.Account]
	Made    *runner.Info    // a persistent sandbox as Create made it, with only the level of its receipt; nil if another client made it
	Trace   []runner.Stage  // stages of its creation; nil if another client made it
	Out     string

	Unmapped *runner.User // the image's user, for which 0:0 stands in; nil if that one is mapped, or another client made the sandbox

	// Restarted reports that the sandbox had lost its processes and was restarted over its files, and that no
	// command's result has reported it since. Copies and [Sandbox.Files] do not count as such commands.
	Restarted      bool
	MissingSecrets []string // names of secrets missing after the restart, reported in the same way
	Unserved       bool     // the server of its Docker socket was killed
	Existing       bool     // a sandbox with this key already existed
	Replaced       bool     // another sandbox with this key was removed for it

	client    *Client
	account   account
	listeners listeners
}

// Account fetches the receipt. It is a separate call because encoding and decoding a receipt takes as long as all
// other messages of a run. [runner.Command.Account] adds the receipt to results.
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

// Remove ends all processes of the sandbox and removes its files.
func (s *Sandbox) Remove(ctx context.Context) error { return s.client.Remove(ctx, s.ID) }
