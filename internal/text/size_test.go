package text

import (
	"math"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		why  string
	}{
		{"0", 0, ""}, {"1", 1, ""}, {"1b", 1, ""}, {"512m", 512 << 20, ""}, {"512M", 512 << 20, ""},
		{"2g", 2 << 30, ""}, {"1GiB", 1 << 30, ""}, {"1.5g", 3 << 29, ""}, {"4kb", 4096, ""}, {"1t", 1 << 40, ""},
		{"8388607t", 8388607 << 40, ""}, {"none", Unlimited, ""}, {"9223372036854775807", math.MaxInt64, ""},
		{"", 0, "not a size"}, {"m", 0, "not a size"}, {"-1", 0, "not a size"}, {"1 m", 0, "not a size"},
		{"1e3", 0, "not a size"}, {"1.2.3", 0, "not a size"}, {"None", 0, "not a size"}, {"0x10", 0, "not a size"},
		{"8388608t", 0, "too large"}, {"9223372036854775808", 0, "too large"}, {"99999999999t", 0, "too large"},
	} {
		got, err := ParseSize(c.in)
		if got != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, %q", c.in, got, err, c.want, c.why)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1024: "1k", 1536: "1536", 8 << 20: "8m", 1 << 40: "1t", 1 << 50: "1024t", -1: "none"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

// FuzzParseSize checks that sizes are never negative, except for "none", and survive formatting.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"512m", "1.5GiB", "none", "99999999999t", "1e9", "٣m", "1\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 && s != "none" {
			t.Errorf("ParseSize(%q) = %d", s, n)
		}
		if again, err := ParseSize(FormatSize(n)); again != n || err != nil {
			t.Errorf("ParseSize(FormatSize(%d)) = %d, %v", n, again, err)
		}
	})
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1000 << 10: "1.0 MiB", 999 << 10: "999.0 KiB", 123 << 20: "123.0 MiB", 1 << 62: "4.0 EiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}
