package netns

import (
	"net"
	"net/netip"
)

// The addresses on the pair. They are the same for every sandbox, as each pair is
// between two namespaces that nobody else is in. 198.18.0.0/15 is set apart for tests
// of networks (RFC 2544), so it names nobody; the IPv6 range is a local one (RFC 4193).
// The pools do not contain the pair's own addresses: what is to the sandbox must not
// look local in the gateway.
var (
	gateway4 = netip.MustParsePrefix("198.18.0.1/30")
	gateway6 = netip.MustParsePrefix("fd64:6d65:736e::1/126")
	sandbox4 = netip.MustParsePrefix("198.18.0.2/30")
	sandbox6 = netip.MustParsePrefix("fd64:6d65:736e::2/126")
	pool4    = netip.MustParsePrefix("198.19.0.0/16")
	pool6    = netip.MustParsePrefix("fd64:6d65:736e:1::/112")
)

const (
	pairName  = "demesne0" // both ends, each in its own namespace
	proxyPort = 3128
	dnsPort   = 53
	namedPort = 1 // where the rule sends what has no other listener
)

// Pools are the addresses that may stand for names: what is connected to in them arrives
// at Gateway.Named. As many in each.
func Pools() (v4, v6 netip.Prefix) { return pool4, pool6 }

// ProxyAddr is where a sandbox finds Gateway.Proxy.
func ProxyAddr() netip.AddrPort { return netip.AddrPortFrom(gateway4.Addr(), proxyPort) }

// DNSAddr is where a sandbox finds its name server.
func DNSAddr() netip.AddrPort { return netip.AddrPortFrom(gateway4.Addr(), dnsPort) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
