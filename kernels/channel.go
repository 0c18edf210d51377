package kernels

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// Bounds of what a kernel may send at once.
const (
	maxFrame   = 64 << 20     // bytes of one frame, or of one line
	maxFrames  = 64           // frames of one message
	maxMessage = 2 * maxFrame // bytes of all its frames
	greetBytes = 64           // ZMTP 3.0's greeting
)

// ErrTooLarge is the error of a kernel that sent more at once than a channel takes.
var ErrTooLarge = errors.New("a kernel's message is too large")

// Channel carries messages in both directions. One goroutine may send while another receives.
type Channel interface {
	Send(*Message) error
	// Receive returns the next message. The caller owns it. It returns io.EOF after the kernel's end.
	Receive() (*Message, error)
	Close() error
}

// Socket types of a kernel's channels, as the client has them.
const (
	Dealer = string(zmq4.Dealer) // shell, control and stdin
	Sub    = string(zmq4.Sub)    // iopub: this end subscribes to all topics
)

// errGreeting is the error of a stream whose other end does not speak ZeroMQ's protocol.
var errGreeting = errors.New("greeting")

// zmtpChannel is a ZeroMQ socket with one peer.
type zmtpChannel struct {
	conn *zmq4.Conn
	key  []byte
	mu   sync.Mutex // held while sending
}

// Dial makes a ZeroMQ socket of a stream to a kernel's socket. key signs messages. The channel owns rw.
//
// The kernel is untrusted. zmq4 allocates the length that a frame announces, so the stream passes a check of the frames'
// headers first: see [bounded].
func Dial(rw io.ReadWriteCloser, socket string, key []byte) (Channel, error) {
	c, err := open(rw, socket)
	if err != nil {
		return nil, fmt.Errorf("connect to kernel: %w: %w", errGreeting, err)
	}
	ch := &zmtpChannel{conn: c, key: key}
	if socket == Sub {
		if err := c.SendMsg(zmq4.NewMsg([]byte{1})); err != nil {
			c.Close()
			return nil, fmt.Errorf("subscribe to kernel: %w", err)
		}
	}
	return ch, nil
}

func (c *zmtpChannel) Send(m *Message) error {
	frames, err := m.frames(c.key)
	if err != nil {
		return err
	}
	return c.sendFrames(frames)
}

func (c *zmtpChannel) sendFrames(frames [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SendMsg(zmq4.NewMsgFrom(frames...)); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

func (c *zmtpChannel) Receive() (*Message, error) {
	for {
		msg, err := c.conn.RecvMsg()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil, io.EOF
		case err != nil:
			return nil, fmt.Errorf("receive from kernel: %w", err)
		case msg.Type == zmq4.CmdMsg: // a heartbeat, answered already
			continue
		}
		return parseFrames(msg.Frames, c.key)
	}
}

func (c *zmtpChannel) Close() error { return c.conn.Close() }

// bounded is a stream of ZMTP frames (ZMTP 3.0, rfc.zeromq.org/spec/23). Reading fails with [ErrTooLarge] before the
// header of a frame that is too long, or of a message with too many frames, reaches the reader.
type bounded struct {
	io.ReadWriteCloser
	in     *bufio.Reader
	greet  int    // bytes of the greeting that are still to come
	left   uint64 // bytes of the current frame
	header []byte // of the next frame: checked, and not read yet
	frames int    // of the current message, and
	bytes  uint64 // all their bytes
}

// Frame flags.
const (
	flagMore = 1
	flagLong = 2
)

func (b *bounded) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	switch {
	case b.greet > 0:
		n, err = b.in.Read(p[:min(len(p), b.greet)])
		b.greet -= n
		return n, err
	case len(b.header) > 0:
		n = copy(p, b.header)
		b.header = b.header[n:]
		return n, nil
	case b.left > 0:
		n, err = b.in.Read(p[:min(uint64(len(p)), b.left)])
		b.left -= uint64(n)
		return n, err
	}
	if err := b.next(); err != nil {
		return 0, err
	}
	return b.Read(p)
}

// next reads and checks the header of a frame.
func (b *bounded) next() error {
	var h [9]byte
	if _, err := io.ReadFull(b.in, h[:2]); err != nil {
		return err
	}
	size, n := uint64(h[1]), 2
	if h[0]&flagLong != 0 {
		if _, err := io.ReadFull(b.in, h[2:]); err != nil {
			return err
		}
		size, n = binary.BigEndian.Uint64(h[1:]), 9
	}
	b.frames++
	b.bytes += min(size, maxMessage)
	if size > maxFrame || b.frames > maxFrames || b.bytes > maxMessage {
		return ErrTooLarge
	}
	if h[0]&flagMore == 0 {
		b.frames, b.bytes = 0, 0
	}
	b.header, b.left = h[:n], size
	return nil
}

// These make a [net.Conn] of the stream, as zmq4 wants one. zmq4 sets no deadlines.
func (b *bounded) LocalAddr() net.Addr              { return pipeAddr{} }
func (b *bounded) RemoteAddr() net.Addr             { return pipeAddr{} }
func (b *bounded) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (b *bounded) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (b *bounded) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
