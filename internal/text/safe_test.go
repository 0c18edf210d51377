package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

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
		if got := SafeLine(in); got != want {
			t.Errorf("SafeLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünï 🙂\n":               `"plain ünï 🙂\n"`,
		"a\u009b2Jb\u202ec\x7f\x1b":   `"a\u009b2Jb\u202ec\u007f\u001b"`,
		"\U000e0041 \ufeff\u00a0\xff": `"\udb40\udc41 \ufeff\u00a0\ufffd"`,
	} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(in); err != nil {
			t.Fatal(err)
		}
		got := SafeJSON(b.String())
		if strings.TrimSpace(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != strings.ToValidUTF8(in, "\ufffd") {
			t.Errorf("%q reads %q, %v", in, back, err)
		}
	}
}
