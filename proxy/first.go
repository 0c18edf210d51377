package proxy

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// On ports other than 80 and 443 the client's first bytes determine the protocol:
//
//	a ClientHello       TLS, for the flow's name, as on 443
//	an HTTP request     HTTP, each request with that Host, as on 80
//	anything else       another protocol; the proxy checks no further bytes, not even a later ClientHello (STARTTLS)
//
// Bytes that can still become an HTTP request are forwarded as they come, because the client may wait for an
// answer to them. Only the end of the first line is held back, as a server chooses a host no earlier than there.
// The proxy dials the server before that and forwards what the server sends first.

// kind is the protocol that a client's first bytes belong to.
type kind int

const (
	undecided kind = iota
	otherKind
	tlsKind
	httpKind
	http2Kind
)

// maxLine bounds the first line of an HTTP request, in bytes.
const maxLine = 64 << 10

// classify returns the kind of the client's first bytes b. end means that no more bytes follow.
func classify(b []byte, end bool) kind {
	text := trimBlanks(b)
	switch k := classifyTLS(b); {
	case k == tlsKind, k == undecided && !end:
		return k
	}
	line, whole := text, end
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		line, whole = text[:i], true
	}
	if n := token.prefix(line); n < len(line) && !blank[line[n]] {
		return otherKind
	}
	short, _, cr := bytes.Cut(line, []byte("\r")) // some servers end a line there, to others it is a blank
	switch {
	case cr && classifyLine(short) != otherKind:
		return classifyLine(short)
	case whole:
		return classifyLine(line)
	case len(text) <= maxLine:
		return undecided
	case cr:
		return otherKind // its lines end with a CR
	}
	return httpKind // the HTTP server refuses it
}

// bytesIn is a set of bytes. A client may send a line byte by byte, and each byte makes the proxy classify the whole
// line again. So a look-up must be fast.
type bytesIn [256]bool

func bytesOf(s string) (set bytesIn) {
	for i := range len(s) {
		set[s[i]] = true
	}
	return set
}

// blank are the bytes that some servers accept before a request and between its words. RFC 9112 (3) lists the ASCII
// blanks, a bare CR among them. Servers in Python also split a line at the other bytes. token are the bytes of a
// method.
var (
	blank = bytesOf(" \t\v\f\r\n\x1c\x1d\x1e\x1f\x85\xa0")
	token = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")
)

// prefix returns how many bytes at the start of b are in the set.
func (set *bytesIn) prefix(b []byte) int {
	for i, c := range b {
		if !set[c] {
			return i
		}
	}
	return len(b)
}

// trimBlanks returns b without the blanks that it begins with.
func trimBlanks(b []byte) []byte { return b[blank.prefix(b):] }

// cutWord returns the first word of b and what follows it.
func cutWord(b []byte) (word, rest []byte) {
	b = trimBlanks(b)
	for i, c := range b {
		if blank[c] {
			return b[:i], b[i:]
		}
	}
	return b, nil
}

// classifyTLS is classify for a ClientHello. It includes the SSL 2 format, which carries no server name.
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

// classifyLine is classify for a line of text. An HTTP/0.9 request counts if its target has a host.
func classifyLine(line []byte) kind {
	method, rest := cutWord(line)
	target, rest := cutWord(rest)
	version := isVersion(target)
	last := len(trimBlanks(rest)) == 0
	for len(rest) > 0 && !version {
		var word []byte
		word, rest = cutWord(rest)
		version = isVersion(word)
	}
	switch {
	case version && string(method) == "PRI":
		return http2Kind
	case version, last && bytes.Contains(target, []byte("://")):
		return httpKind
	}
	return otherKind
}

func isVersion(word []byte) bool { return len(word) >= 5 && bytes.EqualFold(word[:5], []byte("HTTP/")) }

// first reads the first bytes of a client, and meanwhile copies from the server to the client.
type first struct {
	f     *flow
	c     *net.TCPConn
	up    net.Conn
	spent *budget

	done chan struct{} // closed when copying from the server has ended or was cancelled

	seen  []byte // read from the client since the last blanks,
	sent  int    // how much of seen went to the server,
	blank bool   // whether blanks went to the server before seen

	mu     sync.Mutex
	taken  bool // copying from the server is cancelled
	copies bool // copying from the server has begun
}

// tunnelAny is tunnel for a protocol that the client's first bytes determine. It returns true when the HTTP
// server now owns c.
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
		f.deny("port %d: TLS or HTTP after the server had sent data or closed", f.q.Port)
		x.end()
	case k == tlsKind:
		x.tls()
	case k == httpKind:
		x.http()
		return true
	default:
		f.deny("port %d: HTTP/2 without TLS: its host cannot be checked; a rule tcp://%s allows it", f.q.Port, f.target())
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

// fromServer copies from the server to the client, unless take cancels it before the server sends anything.
func (x *first) fromServer() {
	defer close(x.done)
	var said []byte
	if tcp, ok := x.up.(*net.TCPConn); ok {
		await(tcp) // pump meets the error again
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

// take cancels copying from the server. It returns false when copying has begun already.
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

// fromClient reads until the client's protocol is known, and returns undecided on an error. For otherKind it has
// forwarded everything it read.
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
		if len(trimBlanks(x.seen)) == 0 && classifyTLS(x.seen) != undecided { // there may be any number of them
			x.seen, x.sent, x.blank = x.seen[:0], 0, x.blank || x.sent > 0
		}
	}
}

// firstOf waits for bytes and returns them. It returns none at the end of the stream. It holds no buffer while it
// waits.
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

// tls continues with a ClientHello.
func (x *first) tls() {
	if x.blank {
		x.f.deny("port %d: TLS after blank lines", x.f.q.Port)
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

// http hands c to the HTTP server. The connection up serves the first request, unless bytes were sent on it already or
// an upstream proxy is in use.
func (x *first) http() {
	x.f.p.unhold(closer{x.up})
	if x.blank || x.sent > 0 || x.f.p.Upstream != nil {
		x.up.Close()
	} else {
		x.f.spare.Store(&x.up)
	}
	x.f.handOver()
	x.f.p.web().toNamed.Give(&held{Conn: x.c, head: trimBlanks(x.seen), flow: x.f})
}

// takeSpare returns, once, the connection that was dialled for a flow before its first request. Otherwise it returns nil.
func (f *flow) takeSpare() net.Conn {
	if up := f.spare.Swap(nil); up != nil {
		return *up
	}
	return nil
}

// closeSpare closes the connection that takeSpare would return.
func (f *flow) closeSpare() {
	if up := f.takeSpare(); up != nil {
		up.Close()
	}
}

// spareFor returns the spare connection for a request, or nil if it may use no such connection.
func (f *flow) spareFor() net.Conn {
	if f.over == nil {
		return nil
	}
	up := f.over.takeSpare()
	if up != nil && !f.mayUse(up) {
		up.Close()
		return nil
	}
	return up
}
