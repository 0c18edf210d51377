package text

import "testing"

func TestPartial(t *testing.T) {
	for in, want := range map[string]int{"": 0, "a": 0, "\xe2": 1, "\xe2\x82": 2, "€": 0, "a\xff": 0, "\x82\x82\x82\x82": 0, "\xf0\x9f\x98": 3} {
		if got := Partial([]byte(in)); got != want {
			t.Errorf("%q: %d", in, got)
		}
	}
}
