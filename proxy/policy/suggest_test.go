package policy

import "testing"

// TestInstead checks that every suggestion is a valid rule, and that it is the intended one where that can be
// known.
func TestInstead(t *testing.T) {
	const examples = "example.com, *.example.com:443 or 10.1.0.0/16:5432"
	for refused, want := range map[string]string{
		"https://x.test/a?b#c":     "x.test",
		"https://u:p@x.test:8443/": "x.test:8443",
		"http://x.test":            "x.test:80",
		"ssh://git@x.test/a/b":     "x.test:22",
		"udp://x.test:53":          "x.test:53",
		"git@github.com:a/b":       "github.com:22",
		"github.com:a/b":           "github.com:443",
		"user@x.test":              "x.test",
		"x.test/path":              "x.test",
		"x.test:70000":             "x.test:443",
		"x.test:0,80":              "x.test:80",
		"x.test:443,,80":           "x.test:443,80",
		"x.test:8010-8000":         "x.test:8000-8010",
		"x.test:https":             "x.test:443",
		"x.test:":                  "x.test:443",
		"tcp://x.test:ssh":         "tcp://x.test:22",
		"*.com":                    "*.example.com",
		"*.com:443":                "*.example.com:443",
		"*.github.io":              "*.example.github.io",
		"*.*.test":                 "*.test",
		"a.*.x.test":               "*.x.test",
		"x..test":                  "x.test",
		"1.2.3":                    "1.2.3.0/24",
		"10:22":                    "10.0.0.0/8:22",
		"10.0.0.0/33":              "10.0.0.0",
		"fe80::1%eth0":             "fe80::1",
		"*":                        examples,
		"":                         examples,
		":80":                      examples,
		"-x.test":                  examples,
		"0x7f.1":                   examples,
	} {
		if _, err := ParseRule(refused); err == nil {
			t.Errorf("%q is a rule", refused)
		}
		if got := Instead(refused); got != want {
			t.Errorf("%q: %q, want %q", refused, got, want)
		}
	}
}

func FuzzInstead(f *testing.F) {
	f.Add("https://u@x.test:1-2,3/")
	f.Add("*.*.[::1%]:")
	f.Fuzz(func(_ *testing.T, s string) { Instead(s) })
}
