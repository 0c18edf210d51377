package changes

import (
	"strings"
	"testing"

	"demesne/internal/cmdline"
	"demesne/session/cow"
)

// TestPatchSafe checks that no byte of a file reaches the terminal as a control sequence.
func TestPatchSafe(t *testing.T) {
	h := []cow.Hunk{{Head: "@@ -1,1 +1,2 @@", Lines: []string{"-a\tb\n", "+x\x1b[2Jy\r\n", "+z\u202e\xff\x7f\ufffd\tä\n"}}}
	want := "@@ -1,1 +1,2 @@\n-a\tb\n+x^[[2Jy^M\n+z<U+202E><FF><U+007F><U+FFFD>\tä\n"
	if got := hunkText(h[0], cmdline.Terminal{}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := hunkText(h[0], cmdline.Terminal{Color: true}); !strings.Contains(got, "\x1b[32m+x^[[2Jy^M\x1b[0m\n") {
		t.Errorf("in colours: %q", got)
	}
}
