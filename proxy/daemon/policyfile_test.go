package daemon

import (
	"strings"
	"testing"

	"demesne/proxy/policy"
)

const asTOML = `
# a comment with allow = ["*.com"]
mode = "package-managers" # "x"
allow = [
  "example.com",
  '*.example.org:443', # and more
]
deny = ["ads.example.com"]

[[rule]]
allow = "api.test:80"
methods = ["GET", "HEAD"]
path = "/v1/*"
max-requests = 5

[[rule]]
allow = "corp.test"
private = true
ech = true
max-bytes = 1_000

[[rule]]
deny = "corp.test:25"
`

// TestParse checks every key of the schema.
func TestParse(t *testing.T) {
	for _, name := range []string{"p.toml", "dir/p.toml"} {
		f, err := parsePolicy(name, asTOML)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, r := range append(f.Policy.Allowed(), f.Policy.Denied()...) {
			words = append(words, r.String())
		}
		if got, want := strings.Join(words, " | "), "example.com | *.example.org:443 | GET,HEAD api.test:80/v1/* | corp.test | ads.example.com | corp.test:25"; got != want {
			t.Errorf("%s: %s", name, got)
		}
		if f.Mode.String() != "package-managers" {
			t.Errorf("%s: mode %s", name, f.Mode)
		}
		rules := f.Policy.Allowed()
		if rules[2].Budget() != (policy.Budget{Requests: 5}) || rules[3].Budget() != (policy.Budget{Bytes: 1000}) {
			t.Errorf("%s: %+v %+v", name, rules[2].Budget(), rules[3].Budget())
		}
		q, _ := policy.Ask("corp.test", 443)
		if !f.Policy.Decide(q).ECH() {
			t.Errorf("%s: ech", name)
		}
		at, _ := policy.Ask("10.0.0.1", 443)
		if d := f.Policy.Dial(f.Policy.Decide(q), q, at.Addr); !d.Allowed {
			t.Errorf("%s: private: %+v", name, d)
		}
	}
}

// TestRefused checks each error and its line.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"p.toml", "\nalow = []\n", `p.toml:2: unknown key "alow", not one of allow, deny, mode, rule`},
		{"p.toml", "allow = [\n 'a.test', # '*.com'\n\n '*.com',\n]\n", `p.toml:4: parse rule "*.com": malformed rule: "com" is a public suffix: anyone can register a name below it`},
		{"p.toml", "deny = [\"a.test:0\"]\nallow = [\"a.test:99999\"]", "p.toml:1: parse rule \"a.test:0\": malformed rule: port \"0\" is not in 1-65535\np.toml:2: parse rule \"a.test:99999\": malformed rule: port \"99999\" is not in 1-65535"},
		{"p.toml", "[[rule]]\nallow = 'a.test'\n[[rule]]\nallow = 'b.test'\npaths = '/x'\n", `p.toml:5: unknown key "paths", not one of allow, deny, ech, max-bytes, max-connections, max-requests, methods, path, private`},
		{"p.toml", "[[rule]]\nallow = 'a.test'\n\n[[rule]]\npath = 'x'\nallow = 'b.test'\n", `p.toml:4: parse path "x": malformed rule: write /exact or /below/*`},
		{"p.toml", "[[rule]]\nallow = 'a.test'\nmax-bytes = 0\n", "p.toml:3: a limit must be greater than 0"},
		{"p.toml", "[[rule]]\nallow = 'a.test'\nmax-bytes = 'x'\n", "p.toml:3: expected a number, not a string"},
		{"p.toml", "[[rule]]\nallow = '*.com'\n", `p.toml:2: parse rule "*.com": malformed rule: "com" is a public suffix: anyone can register a name below it`},
		{"p.toml", "[[rule]]\nmax-bytes = 1\n", "p.toml:1: a rule needs exactly one of allow and deny"},
		{"p.toml", "rule = [{allow='a.test'},\n {allow='b.test', deny='b.test'}]\n", "p.toml:1: a rule needs exactly one of allow and deny"},
		{"p.toml", "allow = 'a.test'", "p.toml:1: expected a list, not a string"},
		{"p.toml", "allow = [1]", "p.toml:1: expected a string, not a number"},
		{"p.toml", "allow = [1.5]", "p.toml:1: expected a string, not a fraction"},
		{"p.toml", "allow = [2026-01-02]", "p.toml:1: expected a string, not a date"},
		{"p.toml", "[[rule]]\nallow = 'a.test'\nmax-bytes = 1.5\n", "p.toml:3: expected a number, not a fraction"},
		{"p.toml", "allow = [[1]]", "p.toml:1: expected a string, not list"},
		{"p.toml", "rule = [1]", "p.toml:1: expected a table, not a number\np.toml:1: a rule needs exactly one of allow and deny"},
		{"p.toml", "mode = 'opne'", `p.toml:1: parse egress mode "opne": unknown egress mode, not one of none, package-managers, open`},
		{"p.toml", "mode = 'open'\nmode = 'open'", "p.toml:2: Key 'mode' has already been defined."},
		{"p.toml", "mode = [[", "p.toml:1: unexpected EOF; expected value"},
		{"p.json", "{}", "p.json: not TOML: write `allow = [\"example.com\"]`, for instance, in \"p.toml\""},
		{"d/p.yaml", "mode: open\n", "d/p.yaml: not TOML: write `allow = [\"example.com\"]`, for instance, in \"p.toml\""},
		{"p.yml", asTOML, "p.yml: not TOML: write `allow = [\"example.com\"]`, for instance, in \"p.toml\""},
		{"policy", asTOML, "policy: not TOML: write `allow = [\"example.com\"]`, for instance, in \"policy.toml\""},
		{"p.toml", strings.Repeat("#", maxFile+1), "p.toml: more than 65536 bytes"},
	} {
		f, err := parsePolicy(c.name, c.text)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n%v, want\n%s", c.text, err, c.want)
		}
		if len(f.Policy.Allowed()) != 0 {
			t.Errorf("%q: rules in spite of an error", c.text)
		}
	}
}

// TestEmpty checks that an empty file denies everything.
func TestEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n"} {
		if f, err := parsePolicy("p.toml", text); err != nil || len(f.Policy.Allowed()) != 0 || f.Mode.String() != "none" {
			t.Errorf("%q: %+v %v", text, f, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("p.toml", asTOML)
	f.Add("p.yaml", asTOML)
	f.Fuzz(func(t *testing.T, name, text string) {
		file, err := parsePolicy(name, text)
		if err != nil && len(file.Policy.Allowed()) > 0 {
			t.Fatal("rules in spite of an error")
		}
	})
}
