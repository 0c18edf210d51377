package upper_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/upper"
)

// copyUpper copies an upper in a single pass.
func copyUpper(dir, kept *os.File) (bytes int64, err error) {
	twin, err := upper.NewLiveCopy(dir, kept, 0)
	if err != nil {
		return 0, err
	}
	err = twin.Settle()
	return twin.Bytes(), errors.Join(err, twin.Close())
}

// TestCopyUpper checks that a tree over a copy of an upper equals the first tree, and is independent of it.
func TestCopyUpper(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{"bin/sh": "sh", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "gone": "x", "dir/a": "a", "dir/b": "b", "old/x": "low", "moved/f": "f"})
	kept := nstest.Dir(t)
	first := tree(t, low, kept)
	in := func(name string) string { return first.Root + "/" + name }
	holes, err := os.Create(in("holes"))
	if err == nil {
		_, err = holes.WriteAt([]byte("end"), 64<<20)
	}
	if err := errors.Join(err, holes.Close(),
		os.Remove(in("gone")), os.RemoveAll(in("old")), os.Mkdir(in("old"), 0o750), os.WriteFile(in("old/y"), []byte("new"), 0o640),
		os.WriteFile(in("dir/a"), []byte("changed"), 0o600), os.Link(in("dir/a"), in("dir/twin")), os.Symlink("/etc/shadow", in("link")),
		unix.Mkfifo(in("pipe"), 0o600), os.Rename(in("moved/f"), in("f")), unix.Setxattr(in("f"), "user.mine", []byte("kept"), 0),
		os.WriteFile(in("big"), bytes.Repeat([]byte("z"), 3<<20), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	dir, err := rootfs.KeptUpper(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	copied := nstest.Dir(t)
	n, err := copyUpper(dir, copied)
	if err != nil || n > 4<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	below, err := rootfs.KeptUpper(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	if err := os.WriteFile(in("dir/b"), []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := tree(t, low, nstest.Dir(t), below)
	for name, want := range map[string]string{
		"gone": "none", "old/x": "none", "old/y": "new", "dir/a": "changed", "dir/twin": "changed", "dir/b": "b",
		"link": "→/etc/shadow", "f": "f", "moved/f": "none", "big": strings.Repeat("z", 3<<20), "bin/sh": "sh",
	} {
		if got := nstest.Content(second.Root, name); got != want {
			t.Errorf("%s is %.40q, want %.40q", name, got, want)
		}
	}
	var a, twin, holed unix.Stat_t
	if err := errors.Join(unix.Stat(second.Root+"/dir/a", &a), unix.Stat(second.Root+"/dir/twin", &twin), unix.Stat(second.Root+"/holes", &holed)); err != nil {
		t.Fatal(err)
	}
	if a.Ino != twin.Ino || a.Nlink != 2 {
		t.Errorf("two names are %d and %d, %d links", a.Ino, twin.Ino, a.Nlink)
	}
	if holed.Size != 64<<20+3 || holed.Blocks > 128 {
		t.Errorf("holes: %d bytes in %d blocks", holed.Size, holed.Blocks)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(second.Root+"/f", "user.mine", value); string(value[:max(n, 0)]) != "kept" {
		t.Errorf("user.mine is %q (%v)", value, err)
	}
	if err := os.WriteFile(second.Root+"/dir/a", []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := nstest.Content(first.Root, "dir/a"); got != "changed" {
		t.Errorf("the first has %q", got)
	}
	if _, err := copyUpper(dir, copied); err == nil {
		t.Error("a copy over a copy")
	}
}

// TestCopyUpperDeep checks that a tree too deep to copy is refused.
func TestCopyUpperDeep(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Dir(t)
	at, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range 260 {
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, eerr := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(at)
		at, err = next, eerr
	}
	unix.Close(at)
	if _, err := copyUpper(dir, nstest.Dir(t)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("too deep: %v", err)
	}
}
