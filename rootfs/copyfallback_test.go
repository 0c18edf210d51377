package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// TestCopied checks that a program sees no difference between a copy and the original.
func TestCopied(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{"file": "content", "dir/closed/x": "y", "link": "→nowhere", "pipe": "|", "old/x": "low", "big": strings.Repeat("z", 3<<20)})
	top := nstest.Layer(t, map[string]string{"old": "a file now", "file-was/": "", "big": "!"})
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	path := func(name string) string { return filepath.Join(low.Name(), name) }
	for _, err := range []error{
		os.Chmod(path("file"), 0o751|fs.ModeSetuid), os.Chmod(path("dir/closed"), 0o500), os.Chtimes(path("file"), when, when),
		unix.Setxattr(path("file"), "user.mine", []byte("kept"), 0), unix.Setxattr(path("dir"), "user.overlay.origin", []byte("x"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if nstest.Many() {
		if err := os.Chown(path("pipe"), 7, 8); err != nil {
			t.Fatal(err)
		}
	}
	tree := image(t, Layout{}, Image{lacks: lacks{overlay: true}}, low, top)
	if tree.Upper != UpperCopied || tree.UpperWhy == nil {
		t.Errorf("upper %q: %v", tree.Upper, tree.UpperWhy)
	}
	inside := func(name string) string { return filepath.Join(tree.Root, name) }
	st, err := os.Stat(inside("file"))
	if err != nil || st.Mode() != 0o751|fs.ModeSetuid || !st.ModTime().Equal(when) || nstest.Content(tree.Root, "file") != "content" {
		t.Errorf("file: %v %v", st, err)
	}
	if st, err := os.Stat(inside("dir/closed")); err != nil || st.Mode().Perm() != 0o500 {
		t.Errorf("dir/closed: %v %v", st, err)
	}
	for name, want := range map[string]string{"link": "→nowhere", "old": "a file now", "dir/closed/x": "y", "big": "none"} {
		if got := nstest.Content(tree.Root, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	var own unix.Stat_t
	if err := unix.Lstat(inside("pipe"), &own); err != nil || own.Mode&unix.S_IFMT != unix.S_IFIFO || nstest.Many() && (own.Uid != 7 || own.Gid != 8) {
		t.Errorf("pipe: %+v %v", own, err)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(inside("file"), "user.mine", value); string(value[:max(n, 0)]) != "kept" {
		t.Errorf("user.mine is %q (%v)", value[:max(n, 0)], err)
	}
	if _, err := unix.Getxattr(inside("dir"), "user.overlay.origin", nil); err != unix.ENODATA {
		t.Errorf("an overlay's own attribute was copied: %v", err)
	}
}

// TestCopiedDeep checks that an image too deep to copy is refused, and that nothing is left of it.
func TestCopiedDeep(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{strings.Repeat("d/", 260): ""})
	dir := t.TempDir()
	if _, err := MountImage(Layout{Dir: dir}, Image{Lowers: []*os.File{low}, UIDs: 1, GIDs: 1, lacks: lacks{overlay: true}}); err == nil {
		t.Error("it was copied")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}
