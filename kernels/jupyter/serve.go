package jupyter

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/peeruser"
	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/kernelcmd"
	"demesne/runner"
	"demesne/session"
)

// Bounds of the clients of a kernel. Every user of the machine can connect to its ports, and is then disconnected.
const (
	maxPeers   = 32               // connections to one port
	greetTime  = 10 * time.Second // from a connection to the end of its greeting
	sendTime   = 30 * time.Second // for a client to take a message
	restartTTL = 30 * time.Second // from the end of a kernel to the removal of its sandbox, unless Jupyter restarts it
	maxFile    = 64 << 10         // bytes of a connection file
)

// connectionFile is what Jupyter's client says about the sockets.
type connectionFile struct{ kernels.Connection }

// readConnection reads and checks a connection file.
func readConnection(path string) (c connectionFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("read connection file %q: %w", path, fsutil.Reason(err))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = errors.New("too large")
	}
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return c, fmt.Errorf("connection file %q: %w", path, err)
	}
	return c, nil
}

func (c *connectionFile) check() error {
	if c.Transport == "" {
		c.Transport = "tcp"
	}
	if c.IP == "localhost" {
		c.IP = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(c.IP)
	switch {
	case c.Transport != "tcp" && c.Transport != "ipc":
		return fmt.Errorf("transport %q: not tcp or ipc", c.Transport)
	case c.Transport == "tcp" && (err != nil || !addr.IsLoopback()):
		return fmt.Errorf("ip %q: a kernel in a sandbox listens on this machine's loopback only", c.IP)
	case c.Key == "" || c.Scheme != "hmac-sha256":
		return errors.New("no key for hmac-sha256: every user of this machine could execute code in the kernel")
	}
	for name, port := range c.ports() {
		if port == 0 {
			return fmt.Errorf("%s_port: missing", name)
		}
	}
	return nil
}

func (c *connectionFile) ports() map[string]uint16 {
	return map[string]uint16{"shell": c.Shell, "iopub": c.IOPub, "stdin": c.Stdin, "control": c.Control, "hb": c.HB}
}

// address returns where Jupyter's client connects to a channel.
func (c *connectionFile) address(port uint16) (network, address string) {
	if c.Transport == "ipc" {
		return "unix", fmt.Sprintf("%s-%d", c.IP, port)
	}
	return "tcp", net.JoinHostPort(c.IP, strconv.Itoa(int(port)))
}

// clients are the connections of Jupyter's clients to a kernel.
type clients struct {
	key       []byte
	take      func(from *kernels.Peer, channel string, m *kernels.Message)
	warn      func(string)
	listeners []net.Listener
	refused   sync.Once // another user is reported once

	mu    sync.Mutex
	peers map[string][]*kernels.Peer // by channel
	open  map[string]int             // connections by channel, with those that have not greeted
}

// listen opens the sockets of a kernel.
func (c *clients) listen(file connectionFile) error {
	c.peers, c.open = map[string][]*kernels.Peer{}, map[string]int{}
	for name, port := range file.ports() {
		network, address := file.address(port)
		l, err := net.Listen(network, address)
		if err != nil {
			c.close()
			return fmt.Errorf("%s_port: %w", name, err)
		}
		c.listeners = append(c.listeners, l)
		go c.accept(l, name)
	}
	return nil
}

// close closes the sockets and all connections.
func (c *clients) close() {
	for _, l := range c.listeners {
		l.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.peers {
		for _, p := range all {
			p.Close()
		}
	}
}

func (c *clients) accept(l net.Listener, channel string) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors
			time.Sleep(100 * time.Millisecond)
			continue
		}
		c.mu.Lock()
		full := c.open[channel] >= maxPeers
		if !full {
			c.open[channel]++
		}
		c.mu.Unlock()
		if full {
			conn.Close()
			continue
		}
		go c.serve(conn, channel)
	}
}

// timed bounds the time of each write.
type timed struct{ net.Conn }

func (t timed) Write(b []byte) (int, error) {
	t.SetWriteDeadline(time.Now().Add(sendTime))
	return t.Conn.Write(b)
}

// serve serves one connection until it ends.
func (c *clients) serve(conn net.Conn, channel string) {
	defer func() {
		c.mu.Lock()
		c.open[channel]--
		c.mu.Unlock()
	}()
	if err := c.admit(conn); err != nil {
		conn.Close()
		if !errors.Is(err, peeruser.ErrNone) { // that one has left
			c.refused.Do(func() { c.warn("refused a client: " + err.Error()) })
		}
		return
	}
	conn.SetReadDeadline(time.Now().Add(greetTime))
	p, err := kernels.Accept(timed{conn}, channel, c.key)
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	c.add(channel, p)
	defer c.remove(channel, p)
	if channel == "hb" || channel == "iopub" {
		p.Echo()
		return
	}
	for {
		m, err := p.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.warn("a client was disconnected: " + err.Error())
			}
			return
		}
		c.take(p, channel, m)
	}
}

// admit refuses connections of other users than this one and root. Signatures keep them from executing code, but the channel
// of outputs sends to every client.
func (c *clients) admit(conn net.Conn) error {
	uid, err := peeruser.Of(conn)
	switch {
	case errors.Is(err, peeruser.ErrNone):
		return err
	case err != nil:
		return fmt.Errorf("find its user: %w: with c.KernelManager.transport = 'ipc' Jupyter uses sockets of this user", err)
	case uid != 0 && uid != os.Getuid():
		return fmt.Errorf("it is of user %d", uid)
	}
	return nil
}

func (c *clients) add(channel string, p *kernels.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers[channel] = append(c.peers[channel], p)
}

func (c *clients) remove(channel string, p *kernels.Peer) {
	p.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	var rest []*kernels.Peer
	for _, o := range c.peers[channel] {
		if o != p {
			rest = append(rest, o)
		}
	}
	c.peers[channel] = rest
}

// publish sends a message to all clients. One that does not take it within sendTime is disconnected.
func (c *clients) publish(m *kernels.Message) {
	c.mu.Lock()
	all := c.peers["iopub"]
	c.mu.Unlock()
	for _, p := range all {
		if p.Publish(m) != nil {
			p.Close()
		}
	}
}

// twin returns the connection of from's client to another channel, or nil. A client gives the sockets of its shell and
// its stdin one identity.
func (c *clients) twin(from *kernels.Peer, channel string) *kernels.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers[channel] {
		if p.Identity() == from.Identity() {
			return p
		}
	}
	return nil
}

// serve is demesne kernel run: a kernel for Jupyter's clients, until one of them ends it.
func (f *console) serve(o *kernelcmd.Options) (int, error) {
	if o.Connection == "" {
		return 0, text.Hinted(errors.New("run: needs -f FILE"), "demesne kernel install makes Jupyter execute this command")
	}
	file, err := readConnection(o.Connection)
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	watchParent(f.Getenv("JPY_PARENT_PID"), end)
	notice, err := f.useDirectory(o)
	if err != nil {
		return 0, err
	}
	co, err := f.options(o, "python")
	if err != nil {
		return 0, err
	}
	// Jupyter restarts a kernel as a new process with the same connection file. It finds the sandbox by this key.
	co.Create.Spec.Key = fmt.Sprintf("jupyter-%.12x", sha256.Sum256([]byte(file.Key)))
	co.Create.Spec.TTL = runner.Duration(restartTTL)
	co.PreferOwn = true
	r := newRelay(!o.TrustOutput, notice, end)
	r.clients = &clients{key: []byte(file.Key), take: r.request, warn: f.say}
	go r.signals(signals, end)
	if err := r.clients.listen(file); err != nil {
		return 0, err
	}
	defer r.clients.close()
	s := session.New(session.Options{Getenv: f.Getenv})
	defer s.Close()
	k, err := code.Start(ctx, s, co, f.callbacks())
	if err != nil {
		return exitCode, err
	}
	f.tellInstalled(k)
	r.begin(k.Kernel())
	code, keep := r.wait(ctx, f, k)
	k.Close()
	if !keep {
		s.Remove(context.Background(), k.Sandbox.ID)
	}
	return code, nil
}

// useDirectory makes the working directory, which is the notebook's, the workspace. Jupyter is often started in the
// user's home: that is not given to a sandbox unasked, and the notice for the user says so.
func (f *console) useDirectory(o *kernelcmd.Options) (notice string, err error) {
	switch o.Workspace {
	case "none":
		o.Workspace = ""
		return "", nil
	case "":
	default:
		return "", nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working directory: %w", err)
	}
	if f.isHome(dir) {
		return "demesne: this notebook is in your home directory, which its sandbox does not get: /workspace is a temporary directory. " +
			"Move the notebook to a directory of its own, or give one with demesne kernel install --workspace DIR.\n", nil
	}
	o.Workspace = dir
	return "", nil
}

// errGone is the cause of the end of a kernel whose client has ended.
var errGone = errors.New("the kernel's client has ended")

// watchParent ends the kernel when Jupyter's process ends, which names itself in JPY_PARENT_PID.
func watchParent(pid string, end func(error)) {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		return
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		if err == unix.ESRCH {
			end(errGone)
		}
		return
	}
	go func() {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				end(errGone)
				return
			}
		}
	}()
}
