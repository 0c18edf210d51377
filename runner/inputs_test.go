package runner

import (
	"strings"
	"testing"
)

func TestSplitInput(t *testing.T) {
	there := map[string]bool{"a": true, "a:b": true, "dir": true, "we:ird/dir": true}
	for _, c := range []struct{ arg, path, name, why string }{
		{"a", "a", "", ""},
		{"a:b", "a:b", "", ""}, // exists as a whole
		{"a:c", "a", "c", ""},
		{"a:b:c", "a:b", "c", ""}, // cut at the last colon
		{"missing", "missing", "", ""},
		{"missing:x", "missing", "x", ""},
		{"no:such/file", "no:such/file", "", ""}, // the colon belongs to the path
		{"we:ird/dir", "we:ird/dir", "", ""},
		{"we:ird/dir:d", "we:ird/dir", "d", ""},
		{"dir:x/y", "dir", "x/y", "slash"},
		{"a:", "a", "", "no name"},
		{":a", "", "", "no path"},
		{"a:.", "a", ".", "not a file name"},
		{"a:..", "a", "..", "not a file name"},
		{"a:x\ny", "a", "x\ny", "newline"},
		{"a:" + strings.Repeat("n", 256), "a", strings.Repeat("n", 256), "longer"},
	} {
		path, name, err := SplitInput(c.arg, func(p string) bool { return there[p] })
		if path != c.path || name != c.name || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("SplitInput(%q) = %q, %q, %v; want %q, %q, %q", c.arg, path, name, err, c.path, c.name, c.why)
		}
	}
}

// FuzzSplitInput checks that every accepted name is one path element on one line.
func FuzzSplitInput(f *testing.F) {
	for _, s := range []string{"a:b", "a:../..", ":", "a::", "/:x", "a:\x00", "a:b/c:d"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, arg string, there bool) {
		path, name, err := SplitInput(arg, func(p string) bool { return there && p != arg })
		if err != nil || name == "" {
			return
		}
		if strings.ContainsAny(name, "/\n\x00") || name == "." || name == ".." || len(name) > 255 {
			t.Errorf("SplitInput(%q) lets the name %q through", arg, name)
		}
		if path+":"+name != arg {
			t.Errorf("SplitInput(%q) = %q, %q", arg, path, name)
		}
	})
}
