package network

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/network/proxyclient"
)

// TestServiceOf checks that a sandbox without a network namespace finds the proxy, and nothing else, at the addresses that
// other sandboxes have it at.
func TestServiceOf(t *testing.T) {
	where := serviceOf(runner.Egress{GoProxy: true, Routes: []runner.Route{{Port: 7001}}, Listen: []uint16{7003}})
	plain := serviceOf(runner.Egress{})
	v4, v6 := netns.Pools()
	for _, row := range []struct {
		at, service string
		e           unix.Errno
	}{
		{"198.18.0.1:3128", proxyclient.FileProxy, 0},
		{"198.18.0.1:53", proxyclient.FileDNSTCP, 0},
		{"127.0.0.1:53", proxyclient.FileDNSTCP, 0},
		{"[::1]:53", proxyclient.FileDNSTCP, 0},
		{"127.0.0.1:8087", proxyclient.FileGo, 0},
		{"127.0.0.1:7001", proxyclient.FileRoute(7001), 0},
		{"127.0.0.1:7003", api.FileListen(7003), 0},
		{"198.18.0.1:7003", "", unix.ECONNREFUSED},
		{"127.0.0.1:7002", "", unix.ECONNREFUSED},
		{"[::1]:22", "", unix.ECONNREFUSED},
		{"198.18.0.1:22", "", unix.ECONNREFUSED},
		{netip.AddrPortFrom(v4.Addr().Next(), 22).String(), "named." + netip.AddrPortFrom(v4.Addr().Next(), 22).String(), 0},
		{netip.AddrPortFrom(v6.Addr().Next(), 22).String(), "named." + netip.AddrPortFrom(v6.Addr().Next(), 22).String(), 0},
		{"8.8.8.8:53", "", unix.ENETUNREACH},
		{"169.254.169.254:80", "", unix.ENETUNREACH},
		{"0.0.0.0:80", "", unix.ENETUNREACH},
		{"10.0.0.1:3128", "", unix.ENETUNREACH},
		{"[fe80::1]:53", "", unix.ENETUNREACH},
	} {
		if service, e := where(netip.MustParseAddrPort(row.at), false); service != row.service || e != row.e {
			t.Errorf("%s: %q, %v; want %q, %v", row.at, service, e, row.service, row.e)
		}
	}
	for at, want := range map[string]string{"127.0.0.1:53": proxyclient.FileDNS, "198.18.0.1:53": proxyclient.FileDNS, "198.18.0.1:3128": "", "8.8.8.8:53": "", "127.0.0.1:7001": ""} {
		if service, e := where(netip.MustParseAddrPort(at), true); service != want || (e == 0) != (want != "") {
			t.Errorf("datagrams to %s: %q, %v", at, service, e)
		}
	}
	for _, at := range []string{"127.0.0.1:8087", "127.0.0.1:7001"} {
		if service, e := plain(netip.MustParseAddrPort(at), false); e != unix.ECONNREFUSED {
			t.Errorf("%s without a service there: %q, %v", at, service, e)
		}
	}
}
