package daemon

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/proxy"
	"demesne/runner/network/proxyclient"
)

// arrivals serves the connections that arrive as messages on f, until the sandbox ends.
func (b *sandbox) arrivals(f *os.File) {
	defer f.Close()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.arriving = f
	b.mu.Unlock()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	a := &arriving{b: b, named: b.proxy.Arrivals(), feeds: map[string]*feed{}}
	defer a.close()
	for {
		service, c, err := next(raw)
		if err != nil {
			return
		}
		if c != nil {
			a.deliver(service, c)
		}
	}
}

// next returns the next connection, and the name of its service. c is nil if the message had none.
func next(raw interface {
	Read(func(uintptr) bool) error
}) (service string, c net.Conn, err error) {
	var text [128]byte
	oob := make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, inner = unix.Recvmsg(int(fd), text[:], oob, unix.MSG_CMSG_CLOEXEC)
		return inner != unix.EAGAIN && inner != unix.EINTR
	})
	if err = errors.Join(err, inner); err != nil {
		return "", nil, err
	}
	if n == 0 {
		return "", nil, net.ErrClosed
	}
	return string(text[:n]), connection(oob[:oobn]), nil
}

// connection returns the connection in a control message, or nil.
func connection(oob []byte) net.Conn {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(cmsgs) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&cmsgs[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	f := os.NewFile(uintptr(fds[0]), "arrival")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	return c
}

// arriving passes connections to the services of a sandbox.
type arriving struct {
	b     *sandbox
	named *proxy.Arrivals
	feeds map[string]*feed // by service, for those that had a connection
}

func (a *arriving) deliver(service string, arrived net.Conn) {
	c, ok := arrived.(*net.TCPConn)
	switch {
	case ok:
	case service == proxyclient.FileDNS:
		go a.b.proxy.ServeQueries(arrived)
		return
	default:
		arrived.Close()
		return
	}
	if at, ok := strings.CutPrefix(service, proxyclient.FileNamed); ok {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			c.Close()
			return
		}
		a.named.Named(c, to)
		return
	}
	l := a.feeds[service]
	if l == nil {
		serve := a.b.service(service)
		if serve == nil {
			c.Close()
			return
		}
		l = &feed{conns: make(chan net.Conn), closed: make(chan struct{})}
		a.feeds[service] = l
		go serve(l)
	}
	l.give(c)
}

func (a *arriving) close() {
	for _, l := range a.feeds {
		l.Close()
	}
}

// service returns what serves the connections of a service, or nil.
func (b *sandbox) service(name string) func(net.Listener) error {
	switch name {
	case proxyclient.FileProxy:
		return b.proxy.ServeProxy
	case proxyclient.FileDNSTCP:
		return b.proxy.ServeDNSTCP
	case proxyclient.FileGo:
		return b.proxy.ServeGo
	}
	for _, r := range b.proxy.Routes {
		if name == proxyclient.FileRoute(r.Port) {
			return func(l net.Listener) error { return b.proxy.ServeRoute(l, r.Port) }
		}
	}
	return nil
}

// feed is a listener whose connections come from give.
type feed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// give passes c to Accept. It closes c if the listener is closed.
func (l *feed) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		c.Close()
	}
}

func (l *feed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *feed) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *feed) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
