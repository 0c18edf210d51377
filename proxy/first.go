package proxy

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// On a port that is neither 80 nor 443 the first bytes of the client say what is spoken there:
//
//	a ClientHello       TLS, for the flow's name, as on 443
//	an HTTP request     HTTP, each request with that Host, as on 80
//	anything else       another protocol; nothing more is looked at, also no ClientHello that follows (STARTTLS)
//
// What can still become an HTTP request goes on as it comes, but for the end of its first line, by which a server
// chooses a host at the earliest: a client may wait for an answer to it. The server is dialled before, and what it
// says first goes to the client.

// kind is what a client's first bytes are.
type kind int

const (
	undecided kind = iota
	otherKind
	tlsKind
	httpKind
	http2Kind
)

// maxLine bounds what is read for the first line of an HTTP request.
const maxLine = 64 << 10

// classify says what a client speaks whose first bytes are b. end says that no more will come. It is pure.
func classify(b []byte, end bool) kind {
	text := bytes.TrimLeft(b, blanks)
	switch k := classifyTLS(b); {
	case k == tlsKind, k == undecided && !end:
		return k
	}
	line, whole := text, end
	if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
		line, whole = text[:i], true
	}
	method := line
	if i := bytes.IndexAny(line, blanks); i >= 0 {
		method = line[:i]
	}
	switch {
	case bytes.ContainsFunc(method, func(r rune) bool { return !isToken(r) }):
		return otherKind
	case whole:
		return classifyLine(line)
	case len(text) > maxLine:
		return httpKind // which the HTTP server refuses
	}
	return undecided
}

// blanks may come before a request and between its words, as some servers read them.
const blanks = " \t\v\f\r\n"

// classifyTLS is classify for a ClientHello, also that of SSL 2, which has no name in it.
func classifyTLS(b []byte) kind {
	same := func(i int, want byte) bool { return len(b) <= i || b[i] == want }
	switch {
	case len(b) > 0 && b[0] == recordHandshake && same(1, 3):
		return map[bool]kind{true: tlsKind, false: undecided}[len(b) > 1]
	case len(b) > 0 && b[0]&0x80 != 0 && same(2, 1) && same(3, 3):
		return map[bool]kind{true: tlsKind, false: undecided}[len(b) > 3]
	}
	return otherKind
}

// classifyLine is classify for a line of text. A request of HTTP/0.9 may have a host in its target.
func classifyLine(line []byte) kind {
	words := bytes.Fields(line)
	if len(words) < 2 {
		return otherKind
	}
	versions := slices.ContainsFunc(words[1:], func(w []byte) bool { return bytes.HasPrefix(bytes.ToUpper(w), []byte("HTTP/")) })
	switch {
	case versions && string(words[0]) == "PRI":
		return http2Kind
	case versions, len(words) == 2 && bytes.Contains(words[1], []byte("://")):
		return httpKind
	}
	return otherKind
}

func isToken(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// first reads the first bytes of a client, and meanwhile copies what the server says.
type first struct {
	f     *flow
	c     *net.TCPConn
	up    net.Conn
	spent *budget

	done chan struct{} // the server's direction has ended, or was taken back

	seen  []byte // from the client,
	sent  int    // of that to the server,
	blank bool   // and blanks before it

	mu     sync.Mutex
	taken  bool // the server's direction is not to be copied
	copies bool // it is copied
}

// tunnelAny is tunnel for what the client's first bytes say. It returns true when c belongs to the HTTP server from now on.
func (f *flow) tunnelAny(c *net.TCPConn, head []byte, up net.Conn) (given bool) {
	if f.p.hold(closer{up}) != nil {
		up.Close()
		return false
	}
	x := &first{f: f, c: c, up: up, spent: f.p.spent.of(f.d.Rule), done: make(chan struct{})}
	go x.fromServer()
	switch k := x.fromClient(head); {
	case k == otherKind:
		f.out.Add(pump(up, c, x.spent))
	case k == undecided: // the connection broke
		x.end()
	case !x.take():
		f.deny("port %d: TLS or HTTP after the server spoke or ended first", f.q.Port)
		x.end()
	case k == tlsKind:
		x.tls()
	case k == httpKind:
		x.http()
		return true
	default:
		f.deny("port %d: HTTP/2 without TLS, of which the host is not read: a rule tcp://%s allows that", f.q.Port, f.target())
		x.end()
	}
	<-x.done
	f.p.release(closer{up})
	f.sayCut(x.spent)
	return false
}

func (x *first) end() {
	reset(x.c)
	x.up.Close()
}

// fromServer copies what the server says, unless it is taken back before there is anything.
func (x *first) fromServer() {
	defer close(x.done)
	var said []byte
	if tcp, ok := x.up.(*net.TCPConn); ok {
		await(tcp) // pump finds the error again
	} else { // TLS to the host's own proxy
		said = make([]byte, 1)
		n, _ := x.up.Read(said)
		said = said[:n]
	}
	x.mu.Lock()
	x.copies = !x.taken || len(said) > 0
	taken := x.taken
	x.mu.Unlock()
	if taken {
		return
	}
	n, err := x.spent.pass(x.c, said)
	if x.f.in.Add(n); err != nil {
		x.end()
		return
	}
	x.f.in.Add(pump(x.c, x.up, x.spent))
}

// take takes the server's direction back. It returns false when that is copied already.
func (x *first) take() bool {
	x.mu.Lock()
	x.taken = true
	copies := x.copies
	x.mu.Unlock()
	if copies {
		return false
	}
	x.up.SetReadDeadline(time.Unix(1, 0))
	<-x.done
	x.up.SetReadDeadline(time.Time{})
	return !x.copies
}

// fromClient reads until it is clear what the client speaks; undecided is for an error. Of otherKind all that was read is
// sent to the server.
func (x *first) fromClient(head []byte) kind {
	for end := false; ; head = nil {
		if len(head) == 0 {
			var err error
			if head, err = firstOf(x.c); err != nil {
				x.f.broke(err)
				return undecided
			}
			end = len(head) == 0
		}
		x.seen = append(x.seen, head...)
		k := classify(x.seen, end)
		if k != undecided && k != otherKind {
			return k
		}
		if !x.f.send(x.up, x.seen[x.sent:], x.spent) {
			return undecided
		}
		if x.sent = len(x.seen); k == otherKind {
			return k
		}
		if len(bytes.TrimLeft(x.seen, blanks)) == 0 { // of which there may be many
			x.seen, x.sent, x.blank = x.seen[:0], 0, x.blank || x.sent > 0
		}
	}
}

// firstOf waits for bytes and reads them. None are the end. It keeps no buffer while it waits.
func firstOf(c *net.TCPConn) (b []byte, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		buf := buffers.Get().(*[pieceSize]byte)
		defer buffers.Put(buf)
		var n int
		n, _, inner = unix.Recvfrom(int(fd), buf[:], 0)
		b = bytes.Clone(buf[:max(n, 0)])
		return inner != unix.EAGAIN && inner != unix.EINTR
	})
	return b, errors.Join(err, inner)
}

// tls goes on with a ClientHello.
func (x *first) tls() {
	if x.blank {
		x.f.deny("port %d: TLS behind blank lines", x.f.q.Port)
		x.end()
		return
	}
	head, ok := x.f.checkHello(x.c, x.seen)
	if !ok {
		x.up.Close()
		return
	}
	x.f.tunnelTLS(x.c, head, x.sent, x.up)
}

// http gives c to the HTTP server, and up to its first request unless something was sent there before.
func (x *first) http() {
	x.f.p.unhold(closer{x.up})
	if x.blank || x.sent > 0 || x.f.p.Upstream != nil {
		x.up.Close()
	} else {
		x.f.spare.Store(&x.up)
	}
	x.f.handOver()
	x.f.p.web().toNamed.give(&held{Conn: x.c, head: bytes.TrimLeft(x.seen, blanks), flow: x.f})
}

// takeSpare returns the connection that was dialled for a flow before its first request, once; or nil.
func (f *flow) takeSpare() net.Conn {
	if up := f.spare.Swap(nil); up != nil {
		return *up
	}
	return nil
}
