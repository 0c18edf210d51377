package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestEscapeN3Names checks that all spellings of a name parse to the same Name.
func TestEscapeN3Names(t *testing.T) {
	for in, want := range map[string]string{
		"example.com":              "example.com",
		"EXAMPLE.com":              "example.com",
		"example.com.":             "example.com",
		"evil。com":                 "evil.com", // ideographic full stop
		"ｅｖｉｌ．ｃｏｍ":                 "evil.com", // full width
		"bücher.example":           "xn--bcher-kva.example",
		"xn--bcher-kva.example":    "xn--bcher-kva.example",
		"r3---sn-x.example":        "r3---sn-x.example",
		"_dmarc.example.com":       "_dmarc.example.com",
		"localhost":                "localhost",
		"1.example":                "1.example",
		"0xa.example":              "0xa.example",
		strings.Repeat("a", 63):    strings.Repeat("a", 63),
		"exam\u00adple.com":        "example.com", // soft hyphen: mapped away
		"Ⅷ.example":                "viii.example",
		"fass.de":                  "fass.de",
		"faß.de":                   "xn--fa-hia.de",
		"1.2.3.4.in-addr.arpa":     "1.2.3.4.in-addr.arpa",
		"metadata.google.internal": "metadata.google.internal",
	} {
		if n, err := ParseName(in); err != nil || n.String() != want {
			t.Errorf("ParseName(%q) = %q, %v; want %q", in, n, err, want)
		}
	}
}

// TestEscapeN2N12NoNames checks that ParseName rejects text that another parser could truncate or take for an
// address.
func TestEscapeN2N12NoNames(t *testing.T) {
	for _, in := range []string{
		"", ".", "..", "a..b", ".example.com", "example.com..",
		"evil.com\x00.allowed.com", "evil.com%00.allowed.com", "evil.com\r\nHost: x", "a b", "a\tb", "a\x7fb",
		"user@example.com", "example.com:80", "example.com/", `a\b`, "a#b", "a?b", "[a]", "*.example.com", "a%2eb",
		"-a.example", "a-.example", "a!b.example", "a'b.example", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "com", strings.Repeat("ü", 5000),
		"127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "010.1", "1.2.3", "1.2.3.4.5", "0x", "a.0x1f", "127.0.0.1.",
		"１２７.０.０.１", "::1", "[::1]", "[::ffff:127.0.0.1]", "fe80::1%eth0", "::ffff:1.2.3.4",
		"xn--a", "xn--\u00fc.example", "\xff\xfe.example",
	} {
		if n, err := ParseName(in); !errors.Is(err, errName) || !n.IsZero() {
			t.Errorf("ParseName(%q) = %q, %v", in, n, err)
		}
	}
}

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3.4": "1.2.3.4", "[::1]": "::1", "::1": "::1", "[::ffff:127.0.0.1]": "127.0.0.1", "::FFFF:7F00:1": "127.0.0.1",
	} {
		if n, a, err := ParseHost(in); err != nil || !n.IsZero() || a != netip.MustParseAddr(want) {
			t.Errorf("ParseHost(%q) = %v %v %v", in, n, a, err)
		}
	}
	for _, in := range []string{"[fe80::1%lo]", "fe80::1%25lo", "[1.2.3.4]", "[", "[]", "1.2.3.4 ", "01.2.3.4", "1.2.3.4:80"} {
		if n, a, err := ParseHost(in); !errors.Is(err, errName) {
			t.Errorf("ParseHost(%q) = %v %v %v", in, n, a, err)
		}
	}
}

func TestUnder(t *testing.T) {
	for _, c := range []struct {
		name, zone string
		want       bool
	}{
		{"a.example.com", "example.com", true}, {"a.b.example.com", "example.com", true},
		{"example.com", "example.com", false}, {"notexample.com", "example.com", false}, {"example.com.evil.test", "example.com", false},
	} {
		n, _ := ParseName(c.name)
		z, _ := ParseName(c.zone)
		if n.under(z) != c.want {
			t.Errorf("%s under %s is %v", c.name, c.zone, !c.want)
		}
	}
	if n, _ := ParseName("a.b"); n.under(Name{}) || (Name{}).under(n) {
		t.Error("the zero name takes part")
	}
}

// FuzzParseHost checks that a host is a stable name of accepted bytes, an address, or an error.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"example.com", "evil。com", "0x7f.1", "[::1]", "xn--bcher-kva.example", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, a, err := ParseHost(s)
		if err != nil {
			return
		}
		if n.IsZero() == !a.IsValid() {
			t.Fatalf("%q is %v and %v", s, n, a)
		}
		if a.IsValid() {
			return
		}
		if strings.Trim(n.s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(n.s) > maxName {
			t.Fatalf("%q is the name %q", s, n)
		}
		if again, err := ParseName(n.s); err != nil || again != n {
			t.Fatalf("%q is %q, which is %q: %v", s, n, again, err)
		}
	})
}
