package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"demesne/proxy/policy"
)

// pump copies from src to dst until the end, which it passes on, or until an error or
// the end of the budget, which end both. Between plain TCP connections io.Copy splices,
// also below a LimitedReader; see relay.
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

// passOn copies to the end.
func passOn(dst, src net.Conn) (n int64, err error) {
	to, ok1 := dst.(*net.TCPConn)
	from, ok2 := src.(*net.TCPConn)
	if ok1 && ok2 {
		return relay(to, from)
	}
	return io.Copy(dst, src) // one is TLS to the host's own proxy
}

// bite is how much is spliced before it is counted. Of a budget with less than plenty left each
// byte is counted before it goes on: otherwise all connections of a sandbox, both ways, could
// move more than is left.
const (
	bite   = 256 << 10
	plenty = 2 * 512 * bite
)

var errSpent = errors.New("budget of bytes is spent")

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
		some := b.some(int64(got))
		m, werr := dst.Write(buf[:some])
		n += int64(m)
		switch {
		case werr != nil:
			return n, werr
		case some < int64(got):
			return n, errSpent
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// budget is what a rule has let through.
type budget struct {
	limit                 policy.Budget
	bytes                 atomic.Int64
	connections, requests atomic.Int64
	cut                   atomic.Bool
}

func (b *budget) bounded() bool   { return b.limit.Bytes > 0 }
func (b *budget) exhausted() bool { return b.cut.Load() }

func (b *budget) left() int64 { return b.limit.Bytes - b.bytes.Load() }

// some takes up to n bytes. Fewer are the last.
func (b *budget) some(n int64) int64 {
	over := b.bytes.Add(n) - b.limit.Bytes
	if over <= 0 {
		return n
	}
	over = min(over, n)
	b.bytes.Add(-over)
	b.cut.Store(true)
	return n - over
}

// take takes n bytes that were moved already, or says that they are too many.
func (b *budget) take(n int64) bool {
	if !b.bounded() {
		return true
	}
	if b.bytes.Add(n) > b.limit.Bytes {
		b.cut.Store(true)
	}
	return !b.cut.Load()
}

// budgets are those of all rules, by their text: a policy that is replaced by one with the
// same rule goes on counting.
type budgets struct {
	mu  sync.Mutex
	all map[string]*budget
}

// unbounded is the budget of rules without one.
var unbounded = &budget{}

func (s *budgets) of(r policy.Rule) *budget {
	if r.Budget() == (policy.Budget{}) {
		return unbounded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*budget{}
	}
	b := s.all[r.String()]
	if b == nil {
		b = &budget{limit: r.Budget()}
		s.all[r.String()] = b
	}
	return b
}

// charge counts a connection or request, and says why it is one too many.
func (s *budgets) charge(r policy.Rule, request bool) (why string) {
	b := s.of(r)
	used, limit, what := &b.connections, b.limit.Connections, "connections"
	if request {
		used, limit, what = &b.requests, b.limit.Requests, "requests"
	}
	switch {
	case b.exhausted():
		return fmt.Sprintf("rule %q: its budget of %d bytes is spent", r, b.limit.Bytes)
	case limit > 0 && used.Add(1) > limit:
		return fmt.Sprintf("rule %q: its budget of %d %s is spent", r, limit, what)
	}
	return ""
}
