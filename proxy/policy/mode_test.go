package policy

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func decide(t *testing.T, p Policy, host string, port uint16) Decision {
	t.Helper()
	q, err := Ask(host, port)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(q)
}

// ecosystem returns the ecosystem of that name.
func ecosystem(t *testing.T, name string) Ecosystem {
	t.Helper()
	i := slices.IndexFunc(Ecosystems(), func(e Ecosystem) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no ecosystem %q", name)
	}
	return Ecosystems()[i]
}

func TestModes(t *testing.T) {
	npm, debian, crates := ecosystem(t, "npm"), ecosystem(t, "Debian"), ecosystem(t, "crates")
	server, apt := npm.Hosts()[0], debian.Hosts()[0]
	for _, c := range []struct {
		mode string
		host string
		port uint16
		want string
	}{
		{"none", server, 443, "no rule"},
		{"package-managers", server, 443, fmt.Sprintf("allowed by rule %q", server+":443")},
		{"package-managers", server, 80, fmt.Sprintf("rule %q does not cover port 80", server+":443")},
		{"package-managers", npm.Zone, 443, "no rule"},
		{"package-managers", "www." + npm.Zone, 443, "no rule"},
		{"package-managers", GoChecksums, 443, fmt.Sprintf("allowed by rule %q", GoChecksums+":443")},
		{"package-managers", apt, 80, fmt.Sprintf("allowed by rule %q", apt+":80,443")},
		{"package-managers", "upload." + ecosystem(t, "PyPI").Zone, 443, "no rule"},
		{"package-managers", crates.Zone, 443, "no rule"},
		{"open", "example.com", 22, `allowed by rule "*"`},
		{"open", "1.1.1.1", 53, `allowed by rule "*"`},
		{"open", "127.0.0.1", 53, "127.0.0.1 resolves to 127.0.0.1 (loopback), which no rule lists"},
	} {
		m, err := ParseMode(c.mode)
		if err != nil || m.String() != c.mode || m.About() == "" {
			t.Fatal(m, err)
		}
		if d := decide(t, Policy{}.Allow(m.Rules()...), c.host, c.port); d.Reason != c.want {
			t.Errorf("%s %s:%d: %q, want %q", c.mode, c.host, c.port, d.Reason, c.want)
		}
		if m.Everything() != (c.mode == "open") || m.Mirrored() != (c.mode == "package-managers") {
			t.Errorf("%s: everything %v, mirrored %v", m, m.Everything(), m.Mirrored())
		}
	}
	if m := (Mode{}); m.String() != "none" || len(m.Rules()) != 0 || m.Everything() {
		t.Error("the zero mode is not none")
	}
	_, err := ParseMode("opne")
	if want := `parse egress mode "opne": unknown egress mode, not one of none, package-managers, open`; !errors.Is(err, errMode) || err.Error() != want {
		t.Error(err)
	}
}

// TestEcosystemsExact checks that every rule of the table is for one exact name, and that no name occurs twice.
func TestEcosystemsExact(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Ecosystems() {
		rules, err := e.Rules()
		if err != nil || len(rules) == 0 {
			t.Errorf("%s: %v", e.Name, err)
		}
		for _, r := range rules {
			name, exact := r.Name()
			if !exact || seen[name.String()] || e.Ports == "" {
				t.Errorf("%s: %s", e.Name, r)
			}
			seen[name.String()] = true
		}
	}
}
