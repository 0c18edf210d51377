package push

import (
	"maps"
	"net/http"
	"testing"
)

func TestChallenge(t *testing.T) {
	for text, want := range map[string]challenge{
		`Bearer realm="https://a.test/t",service="s, \"t\"",scope="x"`: {"bearer", "https://a.test/t", `s, "t"`},
		`bearer service=s, realm=https://a.test/t`:                     {"bearer", "https://a.test/t", "s"},
		`Basic realm="x"`:                   {scheme: "basic"},
		`Basic`:                             {scheme: "basic"},
		`Bearer realm="file:///etc/passwd"`: {},
		`Bearer realm=`:                     {},
		`Bearer`:                            {},
		`Negotiate`:                         {},
		``:                                  {},
	} {
		got, err := parseChallenge(http.Header{"Www-Authenticate": {"Negotiate", text}})
		if got != want || (err == nil) != (want != challenge{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// FuzzChallenge checks that no header makes the parser fail or loop.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`a="b",c=d`, `a="\`, `="`, `a=b,,c`, `,`, `a="b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := parameters(s); len(got) > len(s) || !maps.Equal(got, parameters(s)) {
			t.Errorf("%q: %q", s, got)
		}
		_, _ = parseChallenge(http.Header{"Www-Authenticate": {"Bearer " + s}})
	})
}

func TestRange(t *testing.T) {
	for s, want := range map[string]int64{"0-99": 100, "bytes=0-99": 100, "0-0": 0, "": -1, "0-": -1, "5-9": -1, "0--1": -1, "0-9999999999999999999": -1, "x": -1, "0-1099511627777": -1} {
		n, ok := parseRange(s)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v", s, n, ok)
		}
	}
}
