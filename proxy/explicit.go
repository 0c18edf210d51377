package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/proxy/policy"
)

// serveProxy tells SOCKS5 from HTTP by the first byte, which stays unread.
func (p *Proxy) serveProxy(c *net.TCPConn) {
	c.SetReadDeadline(time.Now().Add(p.Limits.Head))
	first, err := peek(c)
	if err != nil {
		p.release(c)
		return
	}
	if first == socksVersion {
		p.serveSOCKS(c)
		return
	}
	c.SetReadDeadline(time.Time{})
	p.toHTTP.give(c)
}

// peek looks at the first byte that comes.
func peek(c *net.TCPConn) (byte, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var b [1]byte
	var n int
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, _, inner = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
		return inner != syscall.EAGAIN && inner != syscall.EINTR
	})
	if err = errors.Join(err, inner); err == nil && n == 0 {
		err = errors.New("nothing came")
	}
	return b[0], err
}

// splitTarget reads host:port, of which both must be there.
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

// serveCONNECT opens a tunnel. Bytes that came right behind the request are part of it.
func (p *Proxy) serveCONNECT(w http.ResponseWriter, r *http.Request) {
	q, err := splitTarget(r.RequestURI)
	f := (*flow)(nil)
	if err != nil {
		f = p.malformed("connect", r.RequestURI, err)
	} else {
		f = p.ask("connect", q)
	}
	up, ok := f.ready(r.Context(), func(code int) { http.Error(w, f.message(), code) })
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
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		f.giveUp(up, err)
		p.release(conn)
		return
	}
	f.carry(conn.(*net.TCPConn), head, up)
}

// ready dials for a flow whose client waits for an answer, unless HTTP is to follow: that
// is dialled for by request. It tells refused, by an HTTP status, why not.
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

// carry serves what comes over a connection that was allowed, of which head was read, and
// ends the flow. up is nil when nobody has dialled yet.
func (f *flow) carry(c *net.TCPConn, head []byte, up net.Conn) {
	ok := true
	if s := f.shape(); s == tlsFor || s == httpsFor {
		head, ok = f.checkHello(c, head)
	}
	if ok && f.shape().readable() {
		f.p.flows.Add(-1) // its requests are flows of their own
		f.p.toNamed.give(f.p.intercept(&held{Conn: c, head: head, flow: f}))
		return
	}
	defer f.end()
	defer f.p.release(c)
	var err error
	if ok && up == nil {
		up, err = f.connect(f.p.ctx)
	}
	switch {
	case err != nil:
		reset(c)
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
