package proxy

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"sync"

	"demesne/proxy/policy"
)

var errNames = errors.New("too many names were resolved")

// names assigns each name a number, and with it one address in each pool. A name keeps its address, since the
// sandbox may still use it.
type names struct {
	v4, v6 netip.Prefix
	max    int
	first  uint32 // offset of the first address used in a pool

	mu     sync.RWMutex
	number map[policy.Name]int
	list   []policy.Name
}

// newNames bounds the names by most and by the smaller pool, whose first and last address stay unused. Each
// generation starts at another offset, as far as the pools reach. So an address that a sandbox remembers from an
// earlier generation leads nowhere, and not to another name.
func newNames(v4, v6 netip.Prefix, most, generation int) *names {
	room := math.MaxInt32
	for _, p := range []netip.Prefix{v4, v6} {
		if p.IsValid() {
			room = min(room, 1<<min(30, p.Addr().BitLen()-p.Bits())-2)
		}
	}
	most = min(most, room)
	first := 1 + uint32(generation%max(1, room/max(1, most))*most)
	return &names{v4: v4, v6: v6, max: most, first: first, number: map[policy.Name]int{}}
}

// address returns n's address in a pool. It fails when there are too many names.
func (s *names) address(n policy.Name, pool netip.Prefix) (netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.number[n]
	if !known {
		if i = len(s.list); i >= s.max {
			return netip.Addr{}, errNames
		}
		s.number[n] = i
		s.list = append(s.list, n)
	}
	return offset(pool, s.first+uint32(i)), nil
}

// name returns the name that an address stands for.
func (s *names) name(a netip.Addr) (policy.Name, bool) {
	a = a.Unmap()
	pool := s.v4
	if a.Is6() {
		pool = s.v6
	}
	if !pool.IsValid() || !pool.Contains(a) {
		return policy.Name{}, false
	}
	i := low(a) - low(pool.Masked().Addr()) - s.first
	s.mu.RLock()
	defer s.mu.RUnlock()
	if i >= uint32(len(s.list)) || offset(pool, s.first+i) != a {
		return policy.Name{}, false
	}
	return s.list[i], true
}

// low returns the last 32 bits of an address.
func low(a netip.Addr) uint32 {
	b := a.AsSlice()
	return binary.BigEndian.Uint32(b[len(b)-4:])
}

func offset(pool netip.Prefix, i uint32) netip.Addr {
	b := pool.Masked().Addr().AsSlice()
	end := b[len(b)-4:]
	binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+i)
	a, _ := netip.AddrFromSlice(b)
	return a
}
