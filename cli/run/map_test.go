package run

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzReadList checks that a list is its lines, or refused with the number of the line.
func FuzzReadList(f *testing.F) {
	for _, text := range []string{"", "\n", "a", "a\n", "a\n\nb", "\x00", strings.Repeat("a", maxArgument+1), "\r\n\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := readList(bytes.NewReader(text))
		if bad := bytes.IndexByte(text, 0) >= 0; bad != (err != nil) && len(text) <= maxArgument {
			t.Errorf("%v", err)
		}
		if err == nil && len(text) > 0 && strings.TrimSuffix(string(text), "\n") != strings.Join(list, "\n") {
			t.Errorf("%q", list)
		}
	})
}
