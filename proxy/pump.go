package proxy

import (
	"errors"
	"io"
	"net"
)

// pump copies from src to dst until the end, which it forwards as a half-close. On an error or an exhausted
// budget it closes both. Between plain TCP connections io.Copy splices, even from a LimitedReader; see relay.
func pump(dst, src net.Conn, b *budget) (n int64) {
	var err error
	if b.bounded() {
		n, err = pumpBounded(dst, src, b)
	} else {
		n, err = passOn(dst, src)
	}
	half, ok := dst.(interface{ CloseWrite() error })
	if err != nil || !ok {
		src.Close()
		dst.Close()
		return n
	}
	half.CloseWrite()
	return n
}

// passOn copies until the end.
func passOn(dst, src net.Conn) (n int64, err error) {
	to, ok1 := dst.(*net.TCPConn)
	from, ok2 := src.(*net.TCPConn)
	if ok1 && ok2 {
		return relay(to, from)
	}
	return io.Copy(dst, src) // one is TLS to the host's own proxy
}

// bite is how much is spliced before it is counted. With less than plenty left of a budget, bytes are counted
// before they are forwarded. Otherwise all connections of a sandbox together could move more than the rest.
const (
	bite   = 256 << 10
	plenty = 2 * 512 * bite
)

var errSpent = errors.New("byte budget is used up")

func pumpBounded(dst, src net.Conn, b *budget) (n int64, err error) {
	for b.left() >= plenty {
		m, err := io.Copy(dst, &io.LimitedReader{R: src, N: bite})
		b.take(m)
		n += m
		if err != nil || m < bite {
			return n, err
		}
	}
	m, err := pumpCounted(dst, src, b)
	return n + m, err
}

func pumpCounted(dst, src net.Conn, b *budget) (n int64, err error) {
	buf := make([]byte, 32<<10)
	for {
		got, err := src.Read(buf)
		m, werr := b.pass(dst, buf[:got])
		n += m
		switch {
		case werr != nil:
			return n, werr
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// pass writes p to dst as far as the budget allows.
func (b *budget) pass(dst io.Writer, p []byte) (n int64, err error) {
	some := int64(len(p))
	if b.bounded() {
		some = b.some(some)
	}
	m, err := dst.Write(p[:some])
	if err == nil && some < int64(len(p)) {
		err = errSpent
	}
	return int64(m), err
}
