package stream

import "testing"

func TestIsYes(t *testing.T) {
	for in, want := range map[string]bool{"y\n": true, "Yes\n": true, " y ": true, "": false, "\n": false, "n\n": false, "yy": false} {
		if IsYes(in) != want {
			t.Errorf("%q: %t", in, !want)
		}
	}
}
