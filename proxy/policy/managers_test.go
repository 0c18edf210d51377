package policy

import (
	"net/netip"
	"testing"
)

// TestEscapeN11Managers checks to which addresses the names of package registries may lead: to public ones and, where a
// network has its own mirrors under these names, to internal ones.
func TestEscapeN11Managers(t *testing.T) {
	mode, err := ParseMode("package-managers")
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{}.Allow(mode.Rules()...)
	for _, e := range Ecosystems() {
		for _, host := range e.Hosts() {
			q, err := Ask(host, 443)
			if err != nil {
				t.Fatal(err)
			}
			for addr, want := range map[string]bool{
				"192.0.2.7": true, "10.1.2.3": true, "1.1.1.1": true,
				"127.0.0.1": false, "169.254.169.254": false, "169.254.1.1": false, "::1": false, "224.0.0.1": false,
			} {
				if d := p.Dial(p.Decide(q), q, netip.MustParseAddr(addr)); d.Allowed != want {
					t.Errorf("%s at %s: %+v", host, addr, d)
				}
			}
		}
	}
}
