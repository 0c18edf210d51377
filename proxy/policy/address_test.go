package policy

import (
	"net/netip"
	"testing"
)

// TestEscapeN12N13Classes checks the first and last address of every row of IANA's registries, the forms that
// carry IPv4, and metadata services of clouds.
func TestEscapeN12N13Classes(t *testing.T) {
	for class, addrs := range map[Class][]string{
		classPublic: {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
			"169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "198.17.255.255", "198.20.0.0",
			"223.255.255.255", "2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::", "3ffe:ffff::1", "::ffff:1.1.1.1"},
		classUnspecified: {"0.0.0.0", "0.255.255.255", "::", "::ffff:0.0.0.0"},
		Loopback:         {"127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"},
		classLinkLocal:   {"169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::1", "fec0::1", "fe80::1%eth0"},
		classPrivate: {"10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255", "fc00::",
			"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:10.0.0.1"},
		classShared: {"100.64.0.0", "100.127.255.255"},
		classMetadata: {"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
			"::ffff:169.254.169.254"},
		classMulticast:     {"224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff:ffff::"},
		classDocumentation: {"192.0.2.0", "192.0.2.255", "198.51.100.7", "203.0.113.7", "2001:db8::", "2001:db8:ffff::", "3fff::", "3fff:fff::"},
		classBenchmark:     {"198.18.0.0", "198.19.255.255", "2001:2::", "2001:2:0:ffff::"},
		classReserved: {"192.0.0.0", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.171", "192.0.0.255", "192.31.196.1", "192.52.193.1",
			"192.88.99.1", "192.88.99.2", "192.175.48.1", "240.0.0.0", "255.255.255.255", "100::", "100:0:0:1::", "2001:1::1", "2001:1::2", "2001:1::3",
			"2001:3::", "2001:4:112::", "2001:10::", "2001:1f:ffff::", "2001:20::", "2001:2f::", "2001:30::", "2001:100::", "2001:1ff:ffff::",
			"2620:4f:8000::", "5f00::", "4000::", "200::", "::1:0:0:0:1", "e000::"},
		classTranslated: {"::127.0.0.1", "::2", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2001::", "2001:0:ffff::", "2002::", "2002:7f00:1::",
			"::ffff:0:127.0.0.1"},
	} {
		for _, a := range addrs {
			if got := Classify(netip.MustParseAddr(a)); got != class {
				t.Errorf("%s is %q, want %q", a, got, class)
			}
		}
	}
	if got := Classify(netip.Addr{}); got != classReserved {
		t.Errorf("no address is %q", got)
	}
}

func TestCarried(t *testing.T) {
	for in, want := range map[string]string{
		"::127.0.0.1": "127.0.0.1", "::ffff:127.0.0.1": "127.0.0.1", "64:ff9b::7f00:1": "127.0.0.1", "::ffff:0:10.0.0.1": "10.0.0.1",
		"64:ff9b:1:7f00:0:100::": "127.0.0.1", "2002:a9fe:a9fe::1": "169.254.169.254", "2001:0:1:2:3:4:80ff:fffe": "127.0.0.1",
	} {
		if got, ok := carried(netip.MustParseAddr(in)); !ok || got != netip.MustParseAddr(want) {
			t.Errorf("%s carries %v", in, got)
		}
	}
	for _, in := range []string{"2606:4700::1", "1.2.3.4", "fe80::1"} {
		if got, ok := carried(netip.MustParseAddr(in)); ok {
			t.Errorf("%s carries %v", in, got)
		}
	}
}
