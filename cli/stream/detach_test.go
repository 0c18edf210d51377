package stream

import (
	"errors"
	"testing"
)

// TestDetachKeys checks that typed bytes reach the command unchanged, except Ctrl-P Ctrl-Q, however reads split
// them.
func TestDetachKeys(t *testing.T) {
	const p, q = "\x10", "\x11"
	for _, c := range []struct {
		typed []string
		want  string
		left  bool
	}{
		{[]string{"ls\r"}, "ls\r", false},
		{[]string{"a" + p + q + "b"}, "a", true},
		{[]string{"a" + p, q}, "a", true},
		{[]string{p, "n", q}, p + "n" + q, false},
		{[]string{q + p + p + q}, q + p, true},
		{[]string{p, p, "x"}, p + p + "x", false},
		{[]string{p}, "", false},
	} {
		k := NewDetachKeys()
		got, left := "", false
		for _, typed := range c.typed {
			out, err := k.edit([]byte(typed))
			got += string(out)
			left = left || errors.Is(err, errDetached)
		}
		if got != c.want || left != c.left {
			t.Errorf("%q: %q, left %t", c.typed, got, left)
		}
	}
}
