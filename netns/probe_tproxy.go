package netns

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// listen opens the listener that takes connections to any address. It is made with
// socket(2): net.Listen would make an MPTCP one.
func (e *egress) listen() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	e.listener = fd
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return fmt.Errorf("set IP_TRANSPARENT: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: probePort}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return unix.Listen(fd, 1)
}

// addRule adds `meta l4proto tcp tproxy to :probePort` for all that arrives.
func (e *egress) addRule() error {
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return err
	}
	defer c.CloseLasting()
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "demesne"})
	chain := c.AddChain(&nftables.Chain{
		Name: "in", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(probePort)},
		&expr.TProxy{Family: unix.NFPROTO_IPV4, TableFamily: unix.NFPROTO_IPV4, RegPort: 1},
	}})
	return c.Flush()
}

// connect dials from the sandbox, where the thread is now, and accepts in the
// gateway.
func (e *egress) connect() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	target := &unix.SockaddrInet4{Addr: probeTarget.Addr().As4(), Port: int(probeTarget.Port())}
	if err := unix.Connect(fd, target); err != nil && err != unix.EINPROGRESS {
		return err
	}
	if err := waitFor(e.listener, unix.POLLIN, e.deadline); err != nil {
		return err
	}
	conn, _, err := unix.Accept4(e.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(conn)
	local, err := unix.Getsockname(conn)
	if err != nil {
		return err
	}
	got, ok := local.(*unix.SockaddrInet4)
	if !ok || got.Addr != target.Addr || got.Port != target.Port {
		return fmt.Errorf("arrived at %v, not at %v", local, probeTarget)
	}
	return nil
}

// waitFor polls fd for events until the deadline.
func waitFor(fd int, events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}
