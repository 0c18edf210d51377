package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/agents"
)

// TestMakeStart checks that planted links in the workspace lead nowhere outside it.
func TestMakeStart(t *testing.T) {
	dir, victim := t.TempDir(), t.TempDir()
	if err := MakeStart(dir, "a", "context.txt", agents.ConfigDir); err != nil {
		t.Fatal(err)
	}
	to, err := os.Readlink(dir + "/.demesne-agents/a/context.txt")
	if err != nil || to != "/in/.agent/context.txt" {
		t.Errorf("%q, %v", to, err)
	}
	os.RemoveAll(dir + "/.demesne-agents")
	os.Symlink(victim, dir+"/.demesne-agents")
	if err := MakeStart(dir, "b", "context.txt", agents.ConfigDir); err == nil || !strings.Contains(err.Error(), `make ".demesne-agents/b" in the workspace`) {
		t.Errorf("planted: %v", err)
	}
	if left, _ := filepath.Glob(victim + "/*"); len(left) > 0 {
		t.Errorf("made %s", left)
	}
}
