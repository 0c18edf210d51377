package integration

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestStateWithoutHome checks that commands work for a user whose home is / or cannot be written, and that demesne says
// once where it keeps its files.
func TestStateWithoutHome(t *testing.T) {
	for _, home := range []string{"/", "/proc", "/nonexistent"} {
		b := newBox(t)
		tmp := b.mkdir("t")
		if os.Getuid() == 0 {
			b.as(54321)
			os.Chown(tmp, 54321, 54321)
		}
		b.extra = append(b.extra, "HOME="+home, "TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "DEMESNE_SANDBOX_ROOT=", "DEMESNE_IMAGE_STORE=")
		first := b.demesne("run", "-c", "echo kept > /out/f; echo ran")
		if first.code != 0 || first.stdout != "ran\n" || strings.Count(first.stderr, "state and outputs are in "+tmp+"/demesne-state-") != 1 {
			t.Errorf("HOME %s: %+v", home, first)
		}
		if again := b.demesne("run", "--", "true"); again.code != 0 || again.stderr != "" {
			t.Errorf("HOME %s, second run: %+v", home, again)
		}
		state := names(tmp)
		if len(state) != 1 || !slices.Contains(names(tmp+"/"+state[0]), "out") {
			t.Errorf("HOME %s: state in %q", home, state)
		}
	}
}
