// Package sshserver serves one ssh connection to a sandbox on stdin and stdout, for the ProxyCommand of a client.
//
//	ssh client ── pipe ── demesne ssh --stdio NAME ── runner ── sandbox
//
// There is no listener, no account and no key to manage. The client is authenticated by being at the other end of the pipe:
// the user's own ssh started this process, with the user's rights, and the runner's socket admits only that user. So the
// server accepts the authentication method "none". A password or a key would protect nothing that the same user cannot do by
// demesne exec. The host key serves the same pipe; see hostkey.go.
//
//	connection.go  the sandbox, and lines for the user
//	command.go     shells and commands, with and without a terminal
//	stream.go      their output, until the command ends
//	files.go       sftp, by operations that a process in the sandbox performs
//	forward.go     connections to ports of the sandbox, and what is refused
//	agent.go       the client's ssh agent, if --forward-agent asks for it
//
// The sandbox sends only data: bounded messages under the client's flow control. No path of it is opened on the host.
package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"demesne/internal/text"
	"demesne/server/sshcmd"
	"demesne/session"
)

// Prefix begins the host names of sandboxes in the block of demesne ssh --config.
const Prefix = "demesne-"

// Allowed is what a connection lets the sandbox reach at the client: its ssh agent, and the addresses of -R.
type Allowed struct{ Agent, Remote bool }

// failed is the exit code of a connection that could not be served, as of every verb of demesne.
const failed = 125

// Main serves the connection of demesne ssh --stdio.
func Main() {
	args, allow := os.Args[1:], Allowed{}
	flags := map[string]*bool{sshcmd.ForwardAgent: &allow.Agent, sshcmd.ForwardRemote: &allow.Remote}
	for len(args) > 0 && flags[args[0]] != nil {
		*flags[args[0]], args = true, args[1:]
	}
	err := errors.New("needs the name of one sandbox")
	if len(args) == 1 {
		err = Serve(context.Background(), stdio{}, args[0], allow)
	}
	if err != nil {
		tell(err)
		os.Exit(failed)
	}
}

func tell(err error) {
	fmt.Fprintln(os.Stderr, "demesne: ssh:", text.SafeLine(err.Error()))
	if hint := text.HintOf(err); hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", hint)
	}
}

// Serve serves one connection until the client ends it. Commands that still run then end, as with a killed
// demesne exec.
func Serve(ctx context.Context, client net.Conn, name string, allow Allowed) error {
	service := session.New(session.Options{})
	defer service.Close()
	c := &connection{service: service, allow: allow, opened: make(chan struct{})}
	c.agent = sync.OnceValues(c.listenAgent)
	// The sandbox is opened while the client and this process agree on keys.
	go c.open(ctx, name)
	key, err := hostKey()
	if err != nil {
		return err
	}
	conf := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-demesne"}
	conf.AddHostKey(key)
	conn, channels, requests, err := ssh.NewServerConn(client, conf)
	<-c.opened
	switch {
	case c.err != nil && err == nil:
		tell(c.err)
		go ssh.DiscardRequests(requests)
		fail(conn, channels)
		return nil
	case c.err != nil:
		return c.err
	case err != nil:
		return fmt.Errorf("agree with client: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.conn = conn
	go func() { conn.Wait(); cancel() }()
	c.serve(ctx, channels, requests)
	return nil
}

// fail ends the first session of a client with the exit code of ssh's own errors, so that it adds no words to the ones that the
// user has read. A client without a session loses its connection.
func fail(conn *ssh.ServerConn, channels <-chan ssh.NewChannel) {
	defer time.AfterFunc(time.Second, func() { conn.Close() }).Stop()
	for n := range channels {
		channel, requests, err := n.Accept()
		if err != nil {
			return
		}
		(&command{channel: channel}).status(255)
		channel.Close()
		go ssh.DiscardRequests(requests)
	}
}

// serve serves channels, and requests that belong to none, until the connection ends. What the client sent first is served first: a
// command may use a port of -R at once, and is not run if the client ends because that port was refused.
func (c *connection) serve(ctx context.Context, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	listeners := map[uint32]io.Closer{}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return
			}
			c.request(ctx, r, listeners)
		case n, ok := <-channels:
			if !ok {
				return
			}
			for len(requests) > 0 { // package ssh queues them in the client's order
				c.request(ctx, <-requests, listeners)
			}
			c.channel(ctx, n)
		}
	}
}

func (c *connection) channel(ctx context.Context, n ssh.NewChannel) {
	switch n.ChannelType() {
	case "session":
		channel, requests, err := n.Accept()
		if err == nil {
			go c.session(ctx, channel, requests)
		}
	case "direct-tcpip":
		go c.forward(ctx, n)
	default:
		n.Reject(ssh.UnknownChannelType, "not served: "+text.SafeLine(n.ChannelType()))
	}
}

// request answers a request that belongs to no channel. A listener lets the sandbox reach what the client names, on the client's
// machine and beyond, so it needs the flag of the user who starts this process.
func (c *connection) request(ctx context.Context, r *ssh.Request, listeners map[uint32]io.Closer) {
	var at struct {
		Host string
		Port uint32
	}
	isListen := r.Type == "tcpip-forward"
	ok := (isListen || r.Type == "cancel-tcpip-forward") && ssh.Unmarshal(r.Payload, &at) == nil
	var answer []byte
	switch {
	case isListen && ok && c.allow.Remote && len(listeners) < portsMost:
		l, port, err := c.listen(ctx, at.Host, at.Port)
		if ok = err == nil; ok {
			listeners[port] = l
		} else {
			c.say(err.Error())
		}
		if ok && at.Port == 0 {
			answer = ssh.Marshal(struct{ Port uint32 }{port})
		}
	case isListen || r.Type == "streamlocal-forward@openssh.com":
		ok = false
		c.say("-R is refused: " + sshcmd.ForwardRemote + " lets the sandbox reach the address that a port of -R leads to")
	case listeners[at.Port] != nil:
		listeners[at.Port].Close()
		delete(listeners, at.Port)
	default:
		ok = false
	}
	if r.WantReply {
		r.Reply(ok, answer)
	}
}

// stdio is the connection of a ProxyCommand. The client's end is a pipe or a socket pair, which has no deadlines.
type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }
func (stdio) LocalAddr() net.Addr         { return &net.UnixAddr{Name: "stdio"} }
func (stdio) RemoteAddr() net.Addr        { return &net.UnixAddr{Name: "stdio"} }

func (stdio) SetDeadline(time.Time) error      { return nil }
func (stdio) SetReadDeadline(time.Time) error  { return nil }
func (stdio) SetWriteDeadline(time.Time) error { return nil }

var _ io.ReadWriteCloser = stdio{}
