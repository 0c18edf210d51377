package upper

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMarks checks that no copy has the attributes by which an overlay finds its own inodes.
func TestMarks(t *testing.T) {
	for key, want := range map[string]bool{
		"user.overlay.opaque": true, "user.overlay.whiteout": true, "user.overlay.overlay.opaque": true, "user.mine": true, "user.origin": true,
		"security.capability": true, "user.overlay.origin": false, "user.overlay.impure": false, "trusted.x": false, "security.selinux": false,
	} {
		if got := meansAnythingBelow(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
}

// TestCopySwapped replaces a file by a link or a pipe after it was seen. It checks that the file is not copied, and
// does not block the copy.
func TestCopySwapped(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/other", nil, 0o600), os.Symlink("other", dir+"/link"), unix.Mkfifo(dir+"/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for name, want := range map[string]error{"other": nil, "link": unix.ELOOP, "pipe": unix.ESTALE} {
		if err := (&copier{}).file(int(from.Fd()), int(to.Fd()), name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
