package kernels

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// Socket types of a kernel's channels, as the kernel has them.
const (
	router = string(zmq4.Router) // shell, control and stdin
	pub    = string(zmq4.Pub)    // iopub
	rep    = string(zmq4.Rep)    // heartbeat
)

// serverSockets are the kernel's ends of the channels, by the names of a connection file's ports.
var serverSockets = map[string]string{"shell": router, "control": router, "stdin": router, "iopub": pub, "hb": rep}

// Peer is a client's connection to one of a kernel's channels. It is the other end of [Dial].
type Peer struct{ zmtpChannel }

// Accept makes a Peer of a stream from a client of a kernel. channel is the name of a port in a connection file, without
// _port. The peer owns rw. Any user of the machine may be the client, so Receive must check the first signature.
func Accept(rw io.ReadWriteCloser, channel string, key []byte) (*Peer, error) {
	c, err := open(rw, serverSockets[channel])
	if err != nil {
		return nil, fmt.Errorf("accept client: %w", err)
	}
	return &Peer{zmtpChannel{conn: c, key: key}}, nil
}

// Identity returns the name that the client's socket gave itself. The sockets of one client may share it.
func (p *Peer) Identity() string { return p.conn.Peer.Meta["Identity"] }

// Publish sends a message on an iopub channel. Its topic has the form of ipykernel's.
func (p *Peer) Publish(m *Message) error {
	frames, err := m.frames(p.key)
	if err != nil {
		return err
	}
	return p.sendFrames(append([][]byte{[]byte("kernel." + m.Header.Type)}, frames...))
}

// Echo answers a heartbeat channel until the connection ends. On an iopub channel it waits for that end, and takes
// subscriptions as what all clients of Jupyter ask for: all messages.
func (p *Peer) Echo() error {
	for {
		msg, err := p.conn.RecvMsg()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("receive from client: %w", err)
		case msg.Type != zmq4.CmdMsg && p.conn.Meta["Socket-Type"] == rep:
			if err := p.sendFrames(msg.Frames); err != nil {
				return err
			}
		}
	}
}

// identity is the name of this end of each connection. A kernel asks for input the client whose stdin has the name of the
// shell that the code came from.
var identity = zmq4.SocketIdentity("demesne")

// open makes the greeting and the handshake of ZMTP. zmq4 panics when a peer names an unknown socket type, or cuts a
// property of its metadata, so open turns a panic into an error.
func open(rw io.ReadWriteCloser, socket string) (c *zmq4.Conn, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("greeting: %v", p)
		}
		if err != nil {
			rw.Close()
		}
	}()
	in := &bounded{ReadWriteCloser: rw, in: bufio.NewReaderSize(rw, 64<<10), greet: greetBytes}
	return zmq4.Open(in, null.Security(), zmq4.SocketType(socket), identity, false, nil)
}
