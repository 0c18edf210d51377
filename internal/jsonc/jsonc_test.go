package jsonc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestStandardize(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"{\"a\": 1, // no\n\"b\": [1, 2,], /* c, */ }", "{\"a\": 1,      \n\"b\": [1, 2 ]           }"},
		{`{"a": "// no, /* neither */ ,]"}`, `{"a": "// no, /* neither */ ,]"}`},
		{"\xef\xbb\xbf{}//x", "   {}   "}, {"[" + strings.Repeat("1,", 100_000) + "\"" + strings.Repeat("[", 40_000) + "\"]", "unchanged"},
		{"{\n\n\"a\": nope}", "line 3, column"}, {"{\n/* \n", "line 2, column"}, {"{\"a\": 1 // x\n\"b\": 2}", "line 2, column"},
		{`[,]`, "line 1"}, {`{"a": 1} /`, "line 1"}, {``, "line 2"},
		{strings.Repeat("[", 1_000_000), "more than 30000 brackets"},
		{strings.Repeat(`{"a":`, 200_000), "more than 30000 brackets"},
		{strings.Repeat("[", 29_999), "line 2"},
	} {
		got, err := Standardize([]byte(c.in))
		if c.want == "unchanged" {
			c.want = c.in
		}
		if err == nil && string(got) != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// FuzzStandardize checks that each offset stays the same, and that JSON stays as it is.
func FuzzStandardize(f *testing.F) {
	for _, seed := range []string{`{"a": 1, // x` + "\n" + `}`, "[1,/**/]", "\"\xff\"", `{"\ud800": 1e400}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		got, err := Standardize(text)
		if err == nil && (len(got) != len(before) || !json.Valid(got)) || err == nil && json.Valid(before) && !bytes.Equal(got, before) {
			t.Errorf("%q became %q, %v", before, got, err)
		}
	})
}
