package netns

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// addTProxy makes every TCP connection that is not to the gateway's own address arrive at the listener on
// namedPort, in the calling thread's namespace:
//
//	meta nfproto ipv4 meta l4proto tcp ip daddr != 198.18.0.1 tproxy ip to :1
//
// The kernel tracks and rewrites no connection: the local address of the accepted socket is the original
// destination.
func addTProxy(with6 bool) error {
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	defer c.CloseLasting()
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "demesne"})
	chain := c.AddChain(&nftables.Chain{
		Name: "in", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: redirect(gateway4.Addr())})
	if with6 {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: redirect(gateway6.Addr())})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add tproxy rule: %w", err)
	}
	return nil
}

// redirect returns the rule for the address family of own.
func redirect(own netip.Addr) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of the destination address in the IP header
	if own.Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	to := own.AsSlice()
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(to))},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: to},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(namedPort)},
		&expr.TProxy{Family: family, TableFamily: unix.NFPROTO_INET, RegPort: 1},
	}
}
