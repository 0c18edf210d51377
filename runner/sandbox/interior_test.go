package sandbox

import (
	"net/netip"
	"strings"
	"testing"

	"demesne/runner"
)

func TestAdmitInterior(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name string
		spec runner.Spec
		want string // part of the error; empty: admitted
	}{
		{"plain", runner.Spec{}, ""},
		{"all", runner.Spec{Interior: runner.Interior{Hostname: "box", Hosts: []runner.Host{{Name: "db.test", Addr: addr}}, Tmpfs: []runner.Tmpfs{{Target: "/cache", Size: 1 << 20}, {Target: "/tmp"}}}}, ""},
		{"hostname", runner.Spec{Interior: runner.Interior{Hostname: "a b"}}, "not a host name"},
		{"host line", runner.Spec{Interior: runner.Interior{Hosts: []runner.Host{{Name: "a\n127.0.0.1 b", Addr: addr}}}}, "not a name with an address"},
		{"host without a name", runner.Spec{Interior: runner.Interior{Hosts: []runner.Host{{Addr: addr}}}}, "not a name with an address"},
		{"host without an address", runner.Spec{Interior: runner.Interior{Hosts: []runner.Host{{Name: "a"}}}}, "not a name with an address"},
		{"zone", runner.Spec{Interior: runner.Interior{Hosts: []runner.Host{{Name: "a", Addr: netip.MustParseAddr("fe80::1%x\ny")}}}}, "not a name with an address"},
		{"many hosts", runner.Spec{Interior: runner.Interior{Hosts: make([]runner.Host, hostsMost+1)}}, "at most"},
		{"relative", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "cache"}}}}, "not an absolute path"},
		{"dots", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/a/../proc"}}}}, "not an absolute path"},
		{"root", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/"}}}}, "belongs to demesne"},
		{"proc", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/proc/sys"}}}}, "belongs to demesne"},
		{"inputs", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/in/x"}}}}, "belongs to demesne"},
		{"workspace", runner.Spec{Workspace: "/w", Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/workspace"}}}}, "the workspace is there"},
		{"twice", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/a"}, {Target: "/a"}}}}, "something else is mounted"},
		{"mount", runner.Spec{Mounts: []runner.Mount{{Source: "/b", Target: "/a"}}, Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/a"}}}}, "something else is mounted"},
		{"negative", runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/a", Size: -1}}}}, "less than a page"},
	} {
		err := admitInterior(&c.spec)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
