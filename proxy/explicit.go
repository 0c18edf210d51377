package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sys/unix"

	"demesne/proxy/policy"
)

// headSize is how many bytes of a connection are peeked at, before any is read. The head of nearly every CONNECT
// fits.
const headSize = 1024

// serveProxy tells SOCKS5, CONNECT and other HTTP apart by the first bytes, without consuming them.
func (p *Proxy) serveProxy(c *net.TCPConn) {
	c.SetReadDeadline(time.Now().Add(p.Limits.Head))
	head, err := peek(c, make([]byte, headSize))
	if err != nil {
		p.release(c)
		return
	}
	if head[0] == socksVersion {
		p.serveSOCKS(c)
		return
	}
	c.SetReadDeadline(time.Time{})
	if n, target := connectHead(head); n > 0 {
		p.serveHead(c, head[:n], target)
		return
	}
	p.web().toHTTP.Give(c)
}

// peek returns the first bytes, at least one, without consuming them.
func peek(c *net.TCPConn, b []byte) ([]byte, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, _, inner = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
		return inner != syscall.EAGAIN && inner != syscall.EINTR
	})
	if err = errors.Join(err, inner); err == nil && n == 0 {
		err = errors.New("no data received")
	}
	return b[:max(n, 0)], err
}

// connectHead returns the length of a CONNECT's head and its target. It returns 0 for everything that needs an
// HTTP server: other requests, and heads that are malformed, unusual or incomplete.
func connectHead(b []byte) (n int, target string) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 || !bytes.HasPrefix(b, []byte("CONNECT ")) {
		return 0, ""
	}
	n = end + 4
	r, err := http.ReadRequest(bufio.NewReaderSize(bytes.NewReader(b[:n]), headSize))
	if err != nil || r.ProtoMajor != 1 || r.ContentLength != 0 || r.TransferEncoding != nil || r.Header.Get("Expect") != "" {
		return 0, ""
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return 0, ""
		}
	}
	return n, r.RequestURI
}

// serveHead opens a tunnel as serveCONNECT does, but without an HTTP server, which would take as long as
// everything else together.
func (p *Proxy) serveHead(c *net.TCPConn, head []byte, target string) {
	if _, err := io.ReadFull(c, head); err != nil {
		p.release(c)
		return
	}
	f := p.askCONNECT(target)
	why := 0
	up, ok := f.ready(p.ctx, func(code int) { why = code })
	if !ok {
		f.end()
		refuseHTTP(c, why, f.message())
		p.release(c)
		return
	}
	if _, err := c.Write(established); err != nil {
		f.giveUp(up, err)
		p.release(c)
		return
	}
	f.carry(c, nil, up)
}

var established = []byte("HTTP/1.1 200 Connection established\r\n\r\n")

// linger is how long a refused client may take to read the reason.
const linger = 500 * time.Millisecond

// refuseHTTP answers and waits until the client has closed. Closing a socket with unread data would reset the
// connection and could discard the answer.
func refuseHTTP(c *net.TCPConn, code int, text string) {
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		code, http.StatusText(code), len(text)+1, text)
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(linger))
	io.Copy(io.Discard, io.LimitReader(c, 64<<10))
}

// splitTarget parses host:port. Both parts are required.
func splitTarget(s string) (policy.Query, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return policy.Query{}, fmt.Errorf("no host and port: %.300q", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
		return policy.Query{}, fmt.Errorf("port %.20q is not in 1-65535", port)
	}
	return policy.Ask(host, uint16(n))
}

// askCONNECT decides about the target of a CONNECT.
func (p *Proxy) askCONNECT(target string) *flow {
	q, err := splitTarget(target)
	if err != nil {
		return p.malformed("connect", target, err)
	}
	return p.ask("connect", q)
}

// serveCONNECT opens a tunnel. Bytes that follow the request directly belong to the tunnel.
func (p *Proxy) serveCONNECT(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := awaitAnswer(r.Context(), p.ctx)
	defer cancel()
	f := p.askCONNECT(r.RequestURI)
	up, ok := f.ready(ctx, func(code int) { http.Error(w, f.message(), code) })
	if !ok {
		f.end()
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		f.giveUp(up, err)
		return
	}
	head := make([]byte, buf.Reader.Buffered())
	buf.Reader.Read(head)
	conn.SetDeadline(time.Time{})
	if _, err := conn.Write(established); err != nil {
		f.giveUp(up, err)
		p.release(conn)
		return
	}
	f.carry(conn.(*net.TCPConn), head, up)
}

// ready dials for a flow whose client waits for an answer. It does not dial where HTTP follows, since each
// request dials for itself. On failure it calls refused with an HTTP status.
func (f *flow) ready(ctx context.Context, refused func(code int)) (up net.Conn, ok bool) {
	if !f.d.Allowed {
		refused(http.StatusForbidden)
		return nil, false
	}
	if f.shape().readable() {
		return nil, true
	}
	up, err := f.connect(ctx)
	switch {
	case err == nil:
		return up, true
	case !f.d.Allowed:
		refused(http.StatusForbidden)
	default:
		refused(http.StatusBadGateway)
	}
	return nil, false
}

// carry serves an allowed connection, from which head was already read, and ends the flow. up is nil if the flow
// has not been dialled yet.
func (f *flow) carry(c *net.TCPConn, head []byte, up net.Conn) {
	s, ok := f.shape(), true
	if s == tlsFor || s == httpsFor {
		head, ok = f.checkHello(c, head)
	}
	if ok && s.readable() {
		f.handOver()
		f.p.web().toNamed.Give(f.p.intercept(&held{Conn: c, head: head, flow: f}))
		return
	}
	given := false
	defer func() {
		if !given {
			f.p.release(c)
			f.end()
		}
	}()
	var err error
	if ok && up == nil {
		up, err = f.connect(f.p.ctx)
	}
	switch {
	case err != nil:
		reset(c)
	case ok && s == tlsFor:
		f.tunnelTLS(c, head, 0, up)
	case ok && s == firstSays:
		given = f.tunnelAny(c, head, up)
	case ok:
		f.tunnel(c, head, up)
	case up != nil:
		up.Close()
	}
}

func (f *flow) giveUp(up net.Conn, err error) {
	if up != nil {
		up.Close()
	}
	f.rec.Error = err.Error()
	f.end()
}
