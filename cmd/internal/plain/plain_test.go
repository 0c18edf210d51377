package plain

import "testing"

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		" a\n\tb\u2028c\u2029d\u00a0e ": "a  b c d e",
		"\x1b[2J\a\r\x7f\x00":           "?[2J????",
		"\u009b31m \x9b31m":             "?31m ?31m",
		"gpj.\u202eexe \u2066x\u2069":   "gpj.?exe ?x?",
		"pay\u200bpal \ufeff":           "pay?pal ?",
		"ünïcode 漢字 🙂 …":                "ünïcode 漢字 🙂 …",
		"tag \U000e0041\U000e0042":      "tag ??",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}
