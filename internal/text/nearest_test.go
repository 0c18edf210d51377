package text

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	words := []string{"python", "--memory", "--image", "--in", "--interactive", "--nesting"}
	for in, want := range map[string]string{
		"--memmory": "--memory", "--imgae": "--image", "--intractive": "--interactive", "--verbose": "", "--xyzzyplugh": "", "pyhton": "python", "": "",
		strings.Repeat("--memory", 9): "", "--mmeory": "--memory",
	} {
		if got := Nearest(in, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
