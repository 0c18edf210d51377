package netns

import (
	"net"
	"net/netip"
)

// The addresses on the veth pair. They are the same for every sandbox, as each pair connects two namespaces that
// nothing else is in. 198.18.0.0/15 is reserved for network tests (RFC 2544), so no host uses it; the IPv6 range is
// a unique local one (RFC 4193). The pools do not contain the pair's own addresses: traffic to the sandbox must not
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
	namedPort = 1 // where the tproxy rule sends connections that have no other listener
)

// Pools returns the address ranges that may stand for host names. Connections to them arrive at Gateway.Named. Both
// ranges hold the same number of addresses.
func Pools() (v4, v6 netip.Prefix) { return pool4, pool6 }

// ProxyAddr returns the address at which a sandbox finds Gateway.Proxy.
func ProxyAddr() netip.AddrPort { return netip.AddrPortFrom(gateway4.Addr(), proxyPort) }

// DNSAddr returns the address at which a sandbox finds its name server.
func DNSAddr() netip.AddrPort { return netip.AddrPortFrom(gateway4.Addr(), dnsPort) }

// SandboxAddrs returns the addresses of a sandbox on its pair, the same ones in every sandbox.
func SandboxAddrs() []netip.Addr { return []netip.Addr{sandbox4.Addr(), sandbox6.Addr()} }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
