package policy

import (
	"errors"
	"fmt"
	"testing"
)

// TestWords checks that ParseRule reads a rule's words back to the same rule.
func TestWords(t *testing.T) {
	narrow := func(words string, methods []string, path string) Rule {
		r, err := ParseRule(words)
		if err == nil {
			r, err = r.Requests(methods, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{narrow("example.com", nil, ""), "example.com"},
		{narrow("tcp://*.example.com:1-5,9", nil, ""), "tcp://*.example.com:1-5,9"},
		{narrow("[fd00::1]:443", nil, "").Private(), "[fd00::1]:443 private"},
		{narrow("a.test:443", nil, "").ECH(), "a.test:443 ech"},
		{narrow("a.test", nil, "").Private().ECH().Limited(Budget{Bytes: 1}), "a.test private ech max-bytes=1"},
		{narrow("10.0.0.0/8:80", []string{"GET", "HEAD"}, "/v1/*"), "10.0.0.0/8:80 methods=GET,HEAD path=/v1/*"},
		{narrow("a.test", nil, "/*").Limited(Budget{Bytes: 1, Requests: 2, Connections: 3}), "a.test path=/* max-bytes=1 max-requests=2 max-connections=3"},
		{narrow("a.test", nil, "/a=b").Private().Limited(Budget{Connections: 1 << 62}), "a.test path=/a=b private max-connections=4611686018427387904"},
	} {
		if got := c.rule.Words(); got != c.want {
			t.Errorf("%q says %q", c.want, got)
		}
		back, err := ParseRule(c.want)
		if err != nil || fmt.Sprintf("%#v", back) != fmt.Sprintf("%#v", c.rule) {
			t.Errorf("%q: %v\n%#v\n%#v", c.want, err, back, c.rule)
		}
	}
}

func TestWordsRefused(t *testing.T) {
	for _, s := range []string{
		"a.test ", " a.test", "a.test  private", "a.test Private", "a.test private=no", "a.test ech=yes", "a.test ECH", "a.test public",
		"a.test methods", "a.test methods=", "a.test methods=get", "a.test methods=GET,", "a.test path", "a.test path=v1", "a.test path=/v1/../x",
		"a.test max-bytes", "a.test max-bytes=0", "a.test max-bytes=-1", "a.test max-bytes=1e9", "a.test max-bytes=99999999999999999999",
		"tcp://a.test path=/x", "a.test\tprivate", "a.test path=/x\ty",
	} {
		r, err := ParseRule(s)
		if err == nil || !errors.Is(err, errRule) && !errors.Is(err, errName) {
			t.Errorf("%q: %q, %v", s, r, err)
		}
	}
}
