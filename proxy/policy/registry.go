package policy

import "net/netip"

// Class is the purpose of an address.
type Class string

// The classes. Only Public addresses can be dialled without a rule that names them.
const (
	classPublic        Class = "public"
	classUnspecified   Class = "unspecified"
	Loopback           Class = "loopback"
	classLinkLocal     Class = "link-local"
	classPrivate       Class = "private"
	classShared        Class = "carrier-grade NAT"
	classMetadata      Class = "a cloud's metadata service"
	classMulticast     Class = "multicast"
	classDocumentation Class = "documentation"
	classBenchmark     Class = "benchmarking"
	classReserved      Class = "reserved"
	classTranslated    Class = "an IPv4 address inside IPv6"
)

// block is a row of a registry.
type block struct {
	prefix netip.Prefix
	class  Class
}

func rows(class Class, prefixes ...string) []block {
	var b []block
	for _, p := range prefixes {
		b = append(b, block{netip.MustParsePrefix(p), class})
	}
	return b
}

// registry holds every row of IANA's IPv4 and IPv6 Special-Purpose Address Registries. It adds multicast, IPv6
// outside 2000::/3, and metadata services of clouds, which have otherwise ordinary addresses. The most specific
// row applies. Anycast services of the local network that IANA lists as globally reachable are Reserved here.
var registry = concat(
	rows(classPublic, "0.0.0.0/0", "2000::/3"),
	rows(classReserved, "::/0"), // outside 2000::/3 no global unicast is allocated

	rows(classUnspecified, "0.0.0.0/8", "0.0.0.0/32", "::/128"),
	rows(Loopback, "127.0.0.0/8", "::1/128"),
	rows(classLinkLocal, "169.254.0.0/16", "fe80::/10", "fec0::/10"),
	rows(classPrivate, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
	rows(classShared, "100.64.0.0/10"),
	rows(classMulticast, "224.0.0.0/4", "ff00::/8"),
	rows(classDocumentation, "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	rows(classBenchmark, "198.18.0.0/15", "2001:2::/48"),

	rows(classReserved,
		"192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32",
		"192.0.0.170/32", "192.0.0.171/32",
		"192.31.196.0/24", "192.175.48.0/24", // AS112
		"192.52.193.0/24",                  // AMT
		"192.88.99.0/24", "192.88.99.2/32", // 6to4 relays
		"240.0.0.0/4", "255.255.255.255/32",
		"100::/64", "100:0:0:1::/64", // discard, dummy
		"2001::/23", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:3::/32",
		"2001:4:112::/48", "2620:4f:8000::/48", // AS112
		"2001:10::/28", "2001:20::/28", "2001:30::/28", // ORCHID, DRIP
		"5f00::/16"), // SRv6 SIDs

	rows(classTranslated, "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"),

	rows(classMetadata,
		"169.254.169.254/32", "169.254.169.253/32", "169.254.169.123/32", // most; AWS's DNS and NTP
		"169.254.170.2/32", "169.254.170.23/32", // AWS containers
		"169.254.0.23/32",                                            // Tencent
		"fd00:ec2::254/128", "fd00:ec2::253/128", "fd00:ec2::23/128", // AWS
		"fd20:ce::254/128",   // Google
		"fd00:42::42/128",    // Scaleway
		"100.100.100.200/32", // Alibaba
		"168.63.129.16/32",   // Azure
		"192.0.0.192/32"),    // Oracle
)

func concat(parts ...[]block) []block {
	var all []block
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
