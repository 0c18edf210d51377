package policy

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct{ rule, outer, want string }{
		{"a.test:443", "a.test", "a.test:443"},
		{"a.test:443", "a.test:80,443", "a.test:443"},
		{"a.test:80,443", "a.test", "a.test:80,443"},
		{"a.test:22", "a.test", ""},
		{"a.test:80-443", "a.test", ""},
		{"a.test:*", "a.test", ""},
		{"a.test:*", "a.test:1-65535", "a.test:*"},
		{"a.test:22", "a.test:*", "a.test:22"},
		{"a.test", "a.test:*", "a.test:*"},
		{"a.test:443", "a.test:400-500", "a.test:443"},
		{"a.test:400-600", "a.test:400-500", ""},
		{"a.test", "a.test:443", "a.test:443"},
		{"tcp://a.test", "tcp://a.test:22", "tcp://a.test:22"},
		{"tcp://a.test:443", "a.test:443", ""},
		{"a.test:443", "tcp://a.test:443", "a.test:443"},
		{"b.a.test:443", "*.a.test:443", "b.a.test:443"},
		{"a.test:443", "*.a.test:443", ""},
		{"*.a.test:443", "*.a.test:443", "*.a.test:443"},
		{"*.b.a.test:443", "*.a.test:443", "*.b.a.test:443"},
		{"*.a.test:443", "a.test:443", ""},
		{"*.a.test:443", "*.b.a.test:443", ""},
		{"xa.test:443", "*.a.test:443", ""},
		{"a.test:443", "a.test:443 max-bytes=10 private", "a.test:443 private max-bytes=10"},
		{"a.test:443 methods=GET", "a.test:443", "a.test:443 methods=GET"},
		{"a.test:443 private", "a.test:443", ""},
		{"a.test:443 ech", "a.test:443", ""},
		{"a.test:443 max-bytes=10", "a.test:443 methods=GET", ""},
		{"10.1.2.0/24:80", "10.1.0.0/16:80", "10.1.2.0/24:80"},
		{"10.0.0.0/8:80", "10.1.0.0/16:80", ""},
		{"10.1.2.3:80", "a.test:80", ""},
		{"a.test:80", "0.0.0.0/0:80", ""},
	} {
		rule, err1 := ParseRule(c.rule)
		outer, err2 := ParseRule(c.outer)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		got, ok := rule.Within(outer)
		if ok != (c.want != "") || ok && got.Words() != c.want {
			t.Errorf("%q within %q: %q, %v; want %q", c.rule, c.outer, got.Words(), ok, c.want)
		}
		if again, err := ParseRule(got.Words()); ok && (err != nil || !outer.coversRule(again)) {
			t.Errorf("%q within %q is %q: %v", c.rule, c.outer, got.Words(), err)
		}
	}
	a, _ := ParseRule("a.test:443")
	if got, ok := a.Within(Everything()); !ok || got.Words() != "a.test:443" {
		t.Errorf("within everything: %q %v", got.Words(), ok)
	}
	if _, ok := Everything().Within(a); ok {
		t.Error("everything is within one name")
	}
}

func TestCanonical(t *testing.T) {
	for words, want := range map[string]string{
		"EXAMPLE.com": "example.com", "ｅｖｉｌ．ｃｏｍ:443": "evil.com:443", "*.Bücher.example": "*.xn--bcher-kva.example", "tcp://A.test:22 max-bytes=1": "tcp://a.test:22 max-bytes=1", "10.0.0.1:80": "10.0.0.1:80",
	} {
		if r, err := ParseRule(words); err != nil || r.Canonical() != want {
			t.Errorf("%q: %q %v, want %q", words, r.Canonical(), err, want)
		}
	}
}
