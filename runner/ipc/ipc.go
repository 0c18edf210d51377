// Package ipc carries messages with file descriptors between demesne's programs, over SOCK_SEQPACKET unix sockets.
//
//	demesne ──── caller socket ────▶ demesne-runner ──── init socket ─────▶ demesne-init
//	         Call / Reply / Event                    Call / Reply / Event
//
// A message is one JSON object. It is split into packets of at most [packetSize] bytes, because SO_SNDBUF bounds a
// SEQPACKET datagram. The first byte of a packet says whether another packet follows. Descriptors travel with the
// first packet and are identified by name, never by position:
//
//	packet:  more(1) | fragment of JSON
//	JSON:    {"id":7,"op":"exec","body":{…},"files":["stdin","stdout","stderr"]}
//
// Each side numbers the calls it makes, and the reply carries the same number. An event has no number and expects no
// reply. Either side may send at any time. [Conn] is safe for one reader and many writers.
//
// A sandbox can reach neither socket. The caller socket lives in a directory of mode 0700 that is never mounted. The
// inner end of the init socket is close-on-exec, in a process whose memory the workload cannot read. Both sides
// still treat their input as hostile: sizes are bounded, and unexpected descriptors are closed (P10).
package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// packetSize stays below the smallest default of net.core.wmem_default (212992 bytes, part of which the kernel
	// uses for bookkeeping).
	packetSize = 64 << 10
	// maxMessage bounds a whole message, in bytes. ARG_MAX is 2 MiB by default: its base64 form and the rest of a
	// command fit twice.
	maxMessage = 8 << 20
	// MaxFiles is the number of descriptors that one message may carry. The kernel's SCM_MAX_FD is 253.
	MaxFiles = 250

	flagLast = 0
	flagMore = 1
)

// ErrTooLong is returned for a message over maxMessage or with too many files.
var ErrTooLong = errors.New("message too long")

// Op names a call or an event. Packages api and pid1api define the operations.
type Op string

// Message is the envelope of every call, reply and event.
type Message struct {
	ID    uint64          `json:"id,omitempty"`    // number of a call and its reply; 0 for an event
	Op    Op              `json:"op,omitempty"`    // set in a call or an event; empty in a reply
	Body  json.RawMessage `json:"body,omitempty"`  // its type depends on Op
	Error *Error          `json:"error,omitempty"` // only in a reply
	Names []string        `json:"files,omitempty"` // one name per descriptor, in order

	files []*os.File
}

// File removes the named descriptor from m and returns it, or returns nil. The caller then owns the descriptor.
// [Message.Close] closes the descriptors that remain.
func (m *Message) File(name string) *os.File {
	for i, n := range m.Names {
		if n == name && m.files[i] != nil {
			f := m.files[i]
			m.files[i] = nil
			return f
		}
	}
	return nil
}

// Close closes the descriptors that File has not removed.
func (m *Message) Close() {
	for i, f := range m.files {
		if f != nil {
			f.Close()
			m.files[i] = nil
		}
	}
}

// Decode unmarshals the body into v. An empty body leaves v unchanged.
func (m *Message) Decode(v any) error {
	if len(m.Body) == 0 {
		return nil
	}
	if err := unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("decode %s: %w", m.Op, err)
	}
	return nil
}

// Prewarm makes package json analyze the types of values ahead of time. Encoding the first message of a type costs up
// to ten times as much as the second.
func Prewarm(values ...any) {
	for _, v := range values {
		_, _ = json.Marshal(v)
	}
}

// Files maps names to the descriptors to send. The sender keeps its own copies open.
type Files map[string]*os.File

// Descriptors returns the names of a command's descriptors, by their number: stdin, stdout, stderr, and then the Extra of
// a runner.Command.
func Descriptors() []string {
	return []string{"stdin", "stdout", "stderr", "extra3", "extra4", "extra5"}
}

// Conn is one end of a socket. It allows many concurrent writers but only one reader.
type Conn struct {
	f  *os.File
	mu sync.Mutex // keeps the packets of one message together
}

// packet is the buffer for one packet and its control message. Buffers are pooled, so the many idle connections hold
// none.
type packet struct {
	data [packetSize + 1]byte
	oob  [1024]byte // unix.CmsgSpace(4*MaxFiles) bytes of it are used
}

var packets = sync.Pool{New: func() any { return new(packet) }}

// NewConn takes ownership of f, a SOCK_SEQPACKET socket in blocking or non-blocking mode.
func NewConn(f *os.File) *Conn { return &Conn{f: f} }

// Pair returns two connected sockets, both close-on-exec and non-blocking.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socketpair"), os.NewFile(uintptr(fds[1]), "socketpair"), nil
}

// Close closes the socket. A blocked Recv then returns.
func (c *Conn) Close() error { return c.f.Close() }

// SetReadDeadline sets a deadline for Recv on a non-blocking socket. The zero time removes it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.f.SetReadDeadline(t) }

// Send writes one message. body may be nil. The kernel duplicates the descriptors in files.
func (c *Conn) Send(m Message, body any, files Files) error {
	return c.sendBefore(time.Time{}, m, body, files)
}

// sendBefore is like Send on a non-blocking socket, but gives up at limit, because the other side may have stopped
// reading. It closes the connection if the message was sent only in part. A zero limit means no deadline.
func (c *Conn) sendBefore(limit time.Time, m Message, body any, files Files) error {
	if body != nil {
		b, err := marshal(body)
		if err != nil {
			return fmt.Errorf("encode %s: %w", m.Op, err)
		}
		m.Body = b
	}
	var rights []int
	m.Names = nil
	for name, f := range files {
		if f == nil {
			continue
		}
		m.Names = append(m.Names, name)
		rights = append(rights, int(f.Fd()))
	}
	raw, err := marshalAfter(1, m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Op, err)
	}
	if len(raw) > 1+maxMessage || len(rights) > MaxFiles {
		return fmt.Errorf("send %s: %w", m.Op, ErrTooLong)
	}
	var oob []byte
	if len(rights) > 0 {
		oob = unix.UnixRights(rights...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !limit.IsZero() {
		if err := c.f.SetWriteDeadline(limit); err != nil {
			return fmt.Errorf("send %s: %w", m.Op, err)
		}
		defer c.f.SetWriteDeadline(time.Time{})
	}
	for whole := len(raw); ; {
		n := min(len(raw), 1+packetSize)
		raw[0] = flagLast // in place of the last byte that was sent
		if n < len(raw) {
			raw[0] = flagMore
		}
		if err := c.write(raw[:n], oob); err != nil {
			if len(raw) < whole {
				c.f.Close()
			}
			return fmt.Errorf("send %s: %w", m.Op, err)
		}
		if n == len(raw) {
			return nil
		}
		raw, oob = raw[n-1:], nil
	}
}

// Recv reads one message. It returns io.EOF when the other side is gone for any reason. If a message carries more
// descriptors than this process may open, Recv returns the message without them and an error that wraps EMFILE. The
// connection remains usable.
func (c *Conn) Recv() (*Message, error) {
	var raw []byte
	var files []*os.File
	short := false
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	for first, last := true, false; !last; first = false {
		p, n, got, cut, err := c.read()
		files, short = append(files, got...), short || cut
		if n > 0 {
			raw = append(raw, p.data[1:n]...)
			last = p.data[0] == flagLast
		}
		if p != nil {
			packets.Put(p)
		}
		switch {
		case err != nil:
			closeAll()
			return nil, err
		case n == 0:
			closeAll()
			return nil, io.EOF
		case n == 1 && !last: // otherwise one message could go on forever
			closeAll()
			return nil, errors.New("receive: an empty fragment")
		case !first && len(got) > 0:
			closeAll()
			return nil, errors.New("receive: descriptors in a packet other than the first")
		case len(raw) > maxMessage:
			closeAll()
			return nil, fmt.Errorf("receive: %w", ErrTooLong)
		}
	}
	m := &Message{}
	if err := unmarshal(raw, m); err != nil {
		closeAll()
		return nil, fmt.Errorf("receive: %w", err)
	}
	if named := len(m.Names); short && named > len(files) {
		closeAll()
		m.Names = nil
		return m, fmt.Errorf("receive %d descriptors: %w", named, unix.EMFILE)
	}
	if len(m.Names) != len(files) {
		closeAll()
		return nil, fmt.Errorf("receive: %d descriptors named, %d received", len(m.Names), len(files))
	}
	m.files = files
	return m, nil
}

func (c *Conn) write(p, oob []byte) error {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		werr = unix.Sendmsg(int(fd), p, oob, nil, unix.MSG_NOSIGNAL)
		return !again(werr)
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case err != nil || errors.Is(werr, unix.ECONNRESET): // the connection was closed here, or there with a message unread
		return os.ErrClosed
	}
	return werr
}

// read reads one packet of n bytes. p comes from the pool or is nil; the caller returns it to the pool. cut reports
// that some descriptors could not be received.
func (c *Conn) read() (p *packet, n int, files []*os.File, cut bool, err error) {
	rc, err := c.f.SyscallConn()
	if err != nil {
		return nil, 0, nil, false, err
	}
	var oobn, flags int
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		p = packets.Get().(*packet)
		n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), p.data[:], p.oob[:unix.CmsgSpace(4*MaxFiles)], unix.MSG_CMSG_CLOEXEC)
		if again(rerr) {
			packets.Put(p)
			p = nil
		}
		return p != nil
	})
	switch {
	case err != nil:
		return p, 0, nil, false, err
	case errors.Is(rerr, unix.ECONNRESET):
		return p, 0, nil, false, io.EOF
	case rerr != nil:
		return p, 0, nil, false, os.NewSyscallError("recvmsg", rerr)
	}
	files, err = rightsOf(p.oob[:oobn])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("receive: %w", ErrTooLong)
	}
	return p, n, files, flags&unix.MSG_CTRUNC != 0, err
}

func rightsOf(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receive: control message: %w", err)
	}
	var files []*os.File
	for i := range cmsgs {
		fds, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }
