package rootfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// TestHostChromium checks that the tree has what Debian's command for chromium reads, and no keys beside it.
func TestHostChromium(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	etc := t.TempDir()
	if err := os.Mkdir(etc+"/chromium.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"default-flags", "extensions", "apikeys"} {
		if err := os.WriteFile(etc+"/chromium.d/"+name, []byte("# "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(etc, "/etc", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc", unix.MNT_DETACH)
	tree := mounted(t, Layout{})
	out, err := inside(t, tree, "sh", "-c", "cat /etc/chromium.d/*")
	if err != nil || out != "# default-flags\n# extensions\n" {
		t.Errorf("%q, %v", out, err)
	}
}
