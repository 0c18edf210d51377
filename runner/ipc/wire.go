// Package wire is how demesne's programs talk: messages with descriptors over
// SOCK_SEQPACKET unix sockets.
//
//	demesne ──── caller socket ────▶ demesne-runner ──── guest socket ────▶ demesne-init
//	         Call / Reply / Event                    Call / Reply / Event
//
// A message is one JSON object. It is cut into packets of at most [packetSize]
// bytes, because the kernel bounds a SEQPACKET datagram by SO_SNDBUF; the first
// byte of a packet says whether another one follows. Descriptors ride on the
// first packet and are known by name, never by position:
//
//	packet:  more(1) | fragment of JSON
//	JSON:    {"id":7,"op":"exec","body":{…},"files":["stdin","stdout","stderr"]}
//
// A side numbers the calls it makes; the reply carries the number. An event has
// no number and expects no reply. Either side may send at any time; [Conn] is
// safe for one reader and many writers.
//
// Neither socket is reachable from inside a sandbox: the caller socket lives in a
// directory of mode 0700 that is never mounted, and the guest socket's inner end
// is close-on-exec in a process whose memory the workload cannot read. Both are
// parsed as hostile all the same: sizes are bounded, unexpected descriptors are
// closed (escapes.md P10).
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
	// packetSize leaves room below the smallest default of net.core.wmem_default
	// (212992 bytes, of which the kernel's own book-keeping takes a part).
	packetSize = 64 << 10
	// MaxMessage bounds a whole message: ARG_MAX is 2 MiB by default, base64 and
	// the rest of a command fit twice over.
	MaxMessage = 8 << 20
	// MaxFiles is what one message may carry; SCM_MAX_FD is 253.
	MaxFiles = 250

	flagLast = 0
	flagMore = 1
)

// ErrTooLong is returned for a message over [MaxMessage] or with too many files.
var ErrTooLong = errors.New("message too long")

// Op names a call or an event. Which there are, packages protocol and guestapi say.
type Op string

// Message is the envelope of everything that travels.
type Message struct {
	ID    uint64          `json:"id,omitempty"`    // of a call and its reply; 0 is an event
	Op    Op              `json:"op,omitempty"`    // of a call or an event; empty in a reply
	Body  json.RawMessage `json:"body,omitempty"`  // shape by Op
	Error *Error          `json:"error,omitempty"` // of a reply
	Names []string        `json:"files,omitempty"` // one for each descriptor, in order

	files []*os.File
}

// File takes the descriptor called name out of m, or returns nil. The caller owns
// it from then on; [Message.Close] closes those nobody took.
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

// Close closes the descriptors that were not taken.
func (m *Message) Close() {
	for i, f := range m.files {
		if f != nil {
			f.Close()
			m.files[i] = nil
		}
	}
}

// Decode reads the body into v.
func (m *Message) Decode(v any) error {
	if len(m.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("decode %s: %w", m.Op, err)
	}
	return nil
}

// Prewarm has package json look at the types of values while there is nothing else to do: the
// first message of a type costs up to ten times the second.
func Prewarm(values ...any) {
	for _, v := range values {
		_, _ = json.Marshal(v)
	}
}

// Files names descriptors for sending. The sender keeps its copies.
type Files map[string]*os.File

// Conn is one end of a socket. Writers may be many, the reader is one.
type Conn struct {
	f  *os.File
	mu sync.Mutex // one message's packets are never interleaved with another's
}

// packet is what is read at once, and its control message. A connection on which nothing
// comes has none: there are many of those.
type packet struct {
	data [packetSize + 1]byte
	oob  [1024]byte // of which unix.CmsgSpace(4*MaxFiles) are used
}

var packets = sync.Pool{New: func() any { return new(packet) }}

// NewConn takes over f, a SOCK_SEQPACKET socket in blocking or non-blocking mode.
func NewConn(f *os.File) *Conn { return &Conn{f: f} }

// Pair returns two connected sockets, both close-on-exec.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socketpair"), os.NewFile(uintptr(fds[1]), "socketpair"), nil
}

// Close closes the socket; a blocked Recv returns.
func (c *Conn) Close() error { return c.f.Close() }

// SetReadDeadline bounds Recv on a socket that does not block; the zero time lifts it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.f.SetReadDeadline(t) }

// Send writes one message. body may be nil. Files are duplicated by the kernel.
func (c *Conn) Send(m Message, body any, files Files) error {
	return c.SendBefore(time.Time{}, m, body, files)
}

// SendBefore is Send on a socket that does not block, and gives up at a time: the other side may have stopped reading. A message
// that was sent in part ends the connection. The zero time is Send.
func (c *Conn) SendBefore(limit time.Time, m Message, body any, files Files) error {
	if body != nil {
		b, err := json.Marshal(body)
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
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Op, err)
	}
	if len(raw) > MaxMessage || len(rights) > MaxFiles {
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
	whole := len(raw)
	buf := make([]byte, 0, min(len(raw), packetSize)+1)
	for {
		n := min(len(raw), packetSize)
		flag := byte(flagLast)
		if n < len(raw) {
			flag = flagMore
		}
		buf = append(append(buf[:0], flag), raw[:n]...)
		if err := c.write(buf, oob); err != nil {
			if len(raw) < whole {
				c.f.Close()
			}
			return fmt.Errorf("send %s: %w", m.Op, err)
		}
		raw, oob = raw[n:], nil
		if flag == flagLast {
			return nil
		}
	}
}

// Recv reads one message. io.EOF says the other side is gone, however it went. A message whose
// descriptors are more than this process may open comes without them, and with an error that is EMFILE:
// the connection can go on.
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
		case n == 1 && !last: // or one message could go on for ever
			closeAll()
			return nil, errors.New("receive: an empty fragment")
		case !first && len(got) > 0:
			closeAll()
			return nil, errors.New("receive: descriptors after the first packet")
		case len(raw) > MaxMessage:
			closeAll()
			return nil, fmt.Errorf("receive: %w", ErrTooLong)
		}
	}
	m := &Message{}
	if err := json.Unmarshal(raw, m); err != nil {
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
	case err != nil: // it was closed
		return os.ErrClosed
	}
	return werr
}

// read reads one packet of n bytes. p is from packets, or nil, and the caller's. cut says that not
// all descriptors could be received.
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
