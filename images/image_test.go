package images

import (
	"errors"
	"strings"
	"testing"
)

const someHex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestUnknown(t *testing.T) {
	s := newStore(t)
	addImage(t, s, "mine", []byte("x"))
	for _, c := range []struct{ name, near string }{
		{"pyhton", "python"}, {"pythno", "python"}, {"ubunut", "ubuntu"}, {"mien", "mine"},
		{"nodejs", "node"}, {"zzzzzzzz", ""}, {strings.Repeat("a", 200), ""},
	} {
		_, err := s.Lookup(mustParse(t, c.name))
		var u *UnknownError
		if !errors.As(err, &u) || !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if u.Near != c.near || u.Name != c.name {
			t.Errorf("%s: near %q, want %q", c.name, u.Near, c.near)
		}
		contains(t, strings.Join(u.Known, " "), "host node python go", "desktop mine")
	}
}
