package client

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRunDirLinks: runners without root's uid own a part of real root's run directory. A link that one makes there
// must not make root chown its target.
func TestRunDirLinks(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root can chown
	}
	victim := filepath.Join(t.TempDir(), "root's")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, "state", "ended")); err != nil {
		t.Fatal(err)
	}
	err := takeRunDir(dir, 0o711, true)
	st, _ := os.Stat(victim)
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 0 || err != nil {
		t.Errorf("the file it leads to is %#x's (%v)", uid, err)
	}
}
