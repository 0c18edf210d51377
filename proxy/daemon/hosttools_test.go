package daemon

import (
	"slices"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

func TestMirrors(t *testing.T) {
	for _, c := range []struct{ tool, text, want, err string }{
		{"npm", "registry=https://npm.corp.test/api/npm/\n@acme:registry = http://npm.acme.test:4873\n//npm.corp.test/:_authToken=SECRET\n; registry=https://no.test\n", "npm.corp.test:443 npm.acme.test:4873", ""},
		{"npm", "registry=http://localhost:4873\nregistry=http://127.0.0.1\n", "", ""},
		{"npm", "registry=https://${HOST}/\n", "", "not the URL of a server"},
		{"pip", "[global]\nindex-url = https://user:SECRET@pypi.corp.test/simple\nextra_index_url =\n    https://a.test/simple\n    http://b.test:8080/simple\n[install]\ntrusted-host = b.test\n", "pypi.corp.test:443 a.test:443 b.test:8080", ""},
		{"go", "GOPROXY=https://goproxy.corp.test,https://modules.test|direct\nGOSUMDB=sums.test\nGOFLAGS=-mod=mod\n", "goproxy.corp.test:443 modules.test:443 sums.test:443", ""},
		{"go", "GOSUMDB=sum.corp.test+deadbeef+AbC https://sum.corp.test/db\nGOPROXY=off\n", "sum.corp.test:443", ""},
		{"apt", "# deb http://no.test x\ndeb [arch=amd64 signed-by=/k] http://apt.corp.test/debian stable main\ndeb-src https://apt2.test:8443/ x y\ndeb cdrom:[Debian]/ x main\ndeb file:/srv/x ./\ndeb [trusted=yes]\n", "apt.corp.test:80 apt2.test:8443", ""},
		{"apt", "Types: deb\nURIs: http://10.1.2.3/debian https://[fd00::7]:8443/x\nSuites: stable\n", "10.1.2.3:80 [fd00::7]:8443", ""},
		{"apt", "deb mirror+http://m.test/list stable main\ndeb ftp://f.test/ stable main\n", "m.test:80", `not the URL of a server: scheme "ftp"`},
		{"cargo", "[source.crates-io]\nreplace-with = 'corp'\n[source.corp]\nregistry = 'sparse+https://cargo.corp.test/index/'\n", "cargo.corp.test:443", ""},
		{"cargo", "[registries.acme]\nindex = 'https://crates.acme.test:8443/i'\ntoken = 'SECRET'\n", "crates.acme.test:8443", ""},
		{"cargo", "token = SECRET", "", "parse TOML: malformed"},
		{"npm", "registry=https://user:SECRET@%zz/\n", "", "not the URL of a server"},
	} {
		rules, err := tool(t, c.tool).Mirrors(c.text)
		check(t, c.tool, rules, err, c.want, c.err)
	}
}

func TestMirrorVariables(t *testing.T) {
	for _, c := range []struct{ tool, text, want, err string }{
		{"npm", "https://npm.corp.test/", "npm.corp.test:443", ""},
		{"pip", "https://a.test/simple http://b.test/simple", "a.test:443 b.test:80", ""},
		{"go", "https://p.test,direct", "p.test:443", ""},
		{"go", "off", "", ""},
		{"npm", "npm.corp.test", "", `not the URL of a server: scheme ""`},
	} {
		rules, err := tool(t, c.tool).Value(c.text)
		check(t, c.tool, rules, err, c.want, c.err)
	}
}

func tool(t *testing.T, name string) hostTool {
	t.Helper()
	i := slices.IndexFunc(hostTools(), func(x hostTool) bool { return x.Name == name })
	if i < 0 {
		t.Fatal(name)
	}
	return hostTools()[i]
}

func check(t *testing.T, tool string, rules []policy.Rule, err error, want, wantErr string) {
	t.Helper()
	var got []string
	for _, r := range rules {
		got = append(got, r.String())
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s: %v, want %q", tool, got, want)
	}
	if (err == nil) != (wantErr == "") || (err != nil && !strings.Contains(err.Error(), wantErr)) {
		t.Errorf("%s: %v, want %q", tool, err, wantErr)
	}
	if err != nil && strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%s: a credential in %v", tool, err)
	}
}

// TestMirrorsPrivate checks that a mirror may have a private address, as companies' mirrors do.
func TestMirrorsPrivate(t *testing.T) {
	rules, err := tool(t, "npm").Mirrors("registry=https://npm.corp.test/")
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{}.Allow(rules...)
	q, _ := policy.Ask("npm.corp.test", 443)
	for addr, want := range map[string]bool{"10.1.2.3": true, "127.0.0.1": false, "169.254.169.254": false} {
		at, _ := policy.Ask(addr, 443)
		if d := p.Dial(p.Decide(q), q, at.Addr); d.Allowed != want {
			t.Errorf("%s: %+v", addr, d)
		}
	}
}

func FuzzMirrors(f *testing.F) {
	f.Add("registry=https://npm.corp.test/\nURIs: http://x\ndeb [a] http://b c\n[source.x]\nregistry='y'")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tool := range hostTools() {
			for _, read := range []func(string) ([]policy.Rule, error){tool.Mirrors, tool.Value} {
				rules, _ := read(text)
				for _, r := range rules {
					if name, exact := r.Name(); !exact && strings.Contains(r.String(), "*") {
						t.Fatalf("%s: %v %v", tool.Name, r, name)
					}
				}
			}
		}
	})
}
