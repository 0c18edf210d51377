package policy

import (
	"bytes"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
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

// TestHostsWritten: the host names of package registries stand in no file. Programs and tests make them of the table of
// zones and labels, and examples have names of their own.
func TestHostsWritten(t *testing.T) {
	written := map[string]*regexp.Regexp{}
	for _, e := range Ecosystems() {
		for _, host := range e.Hosts() {
			written[host] = regexp.MustCompile(`(?:^|[^\w.-])` + regexp.QuoteMeta(host) + `(?:[^\w-]|$)`)
		}
	}
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == ".git" || name == "bin" || e.Name() == "node_modules"):
			return fs.SkipDir
		case !e.Type().IsRegular() || name == "proxy/policy/ecosystems.go": // a zone may have a server by its own name
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		for host, whole := range written {
			if bytes.Contains(text, []byte(host)) && whole.Match(text) {
				t.Errorf("%s: %s", name, host)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
