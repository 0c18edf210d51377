package layers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestSweep(t *testing.T) {
	c, hex := newCache(t), hexOf("x")
	if freed, err := c.Sweep(nil); freed != 0 || err != nil {
		t.Errorf("sweeping nothing: %d, %v", freed, err)
	}
	for _, name := range []string{"a", "b", "x"} {
		put(t, c, id(name))
	}
	w, err := c.Begin(t.Context(), id("w"))
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{newPrefix + hexOf("y"), oldPrefix + hex, oldPrefix + hexOf("z")} {
		write(t, filepath.Join(c.Dir(), left, "fs", "file"), "")
	}
	write(t, c.Dir()+"/"+newPrefix+"notes/file", "")
	write(t, c.Dir()+"/README", "")
	if _, err := c.Sweep([]DiffID{id("a"), "sha256:nonsense"}); err == nil || len(entries(t, c)) != 9 {
		t.Errorf("what is to be kept cannot be told, and %q are left: %v", entries(t, c), err)
	}
	if _, err := c.Sweep([]DiffID{id("a")}); err != nil {
		t.Fatal(err)
	}
	want := []string{newPrefix + hexOf("w"), newPrefix + "notes", "README", hexOf("a")}
	slices.Sort(want)
	if got := entries(t, c); !slices.Equal(got, want) {
		t.Errorf("a sweep left %q, want %q", got, want)
	}
	if err := publish(w); err != nil {
		t.Errorf("a sweep disturbed a writer: %v", err)
	}
}

// TestSweepHostileTree checks that everything an image can put into a tree is removed, and nothing outside changes.
func TestSweepHostileTree(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	c, outside := newCache(t), t.TempDir()
	write(t, outside+"/file", "mine")
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Symlink(outside, w.Dir+"/dirlink"),
		os.Symlink(outside+"/file", w.Dir+"/link"),
		os.Link(outside+"/file", w.Dir+"/hard"),
		unix.Mknod(w.Dir+"/whiteout", unix.S_IFCHR, 0),
		unix.Mkfifo(w.Dir+"/fifo", 0o600),
		os.MkdirAll(w.Dir+"/closed/in/side", 0o755),
		os.Mkdir(w.Dir+"/1", 0o755), // a name that emptying uses itself
		os.Mkdir(w.Dir+"/1/2", 0o755),
		os.Chmod(w.Dir+"/closed/in", 0),
		os.Chmod(w.Dir+"/closed", 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if nstest.Many() {
		write(t, w.Dir+"/theirs/file", "")
		for _, name := range []string{"/theirs/file", "/theirs", "/closed"} {
			if err := os.Chown(w.Dir+name, 1234, 1234); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sweep(nil); err != nil || len(entries(t, c)) != 0 {
		t.Errorf("a sweep left %q, %v", entries(t, c), err)
	}
	if got, err := os.ReadFile(outside + "/file"); err != nil || string(got) != "mine" {
		t.Errorf("a sweep went outside: %q, %v", got, err)
	}
}

// TestSweepDeepAndWide sweeps a tree deeper than a path can be, and wider than a batch of names.
func TestSweepDeepAndWide(t *testing.T) {
	c := newCache(t)
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(w.Dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range 3000 {
		if err == nil {
			err = unix.Mkdirat(at, "dir", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		var below int
		below, err = unix.Openat(at, "dir", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(at)
		at = below
	}
	for i := range 1200 { // more than one read of names
		if err := unix.Mkdirat(at, "d"+string(rune('a'+i%26))+string(rune(0x4e00+i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(at)
	if err := w.Abort(); err != nil || len(entries(t, c)) != 0 {
		t.Errorf("an abort left %q, %v", entries(t, c), err)
	}
}

// TestSweepFreed checks that freed counts a file with two names once, and ignores a file with a name elsewhere.
func TestSweepFreed(t *testing.T) {
	c, outside := newCache(t), t.TempDir()
	put(t, c, id("empty"))
	base, err := c.Sweep(nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.Dir+"/file", string(id("empty")))
	write(t, w.Dir+"/big", string(make([]byte, 1<<20)))
	write(t, outside+"/kept", string(make([]byte, 1<<20)))
	for from, to := range map[string]string{w.Dir + "/big": w.Dir + "/again", outside + "/kept": w.Dir + "/kept"} {
		if err := os.Link(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
	freed, err := c.Sweep(nil)
	if err != nil || freed-base < 1<<20 || freed-base > 3<<19 {
		t.Errorf("freed %d more than %d, %v; want 1 MiB", freed-base, base, err)
	}
}

// TestSweepAll checks that a sweep covers the caches of all id maps. It leaves files that its ids cannot remove, and says
// where. One with those ids removes them later.
func TestSweepAll(t *testing.T) {
	bound := os.Getuid() != 0 // modes do not bind root, who removes everything at once
	c := newCache(t)
	other := Open(c.store, "map-1")
	for _, cache := range []Cache{c, other} {
		for _, name := range []string{"kept", "gone", "held"} {
			put(t, cache, id(name))
		}
	}
	outside := Open(t.TempDir(), "map-2")
	put(t, outside, id("outside"))
	if err := os.Symlink(outside.Dir(), filepath.Join(c.store, treesDir, "map-2")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(c.store, treesDir, "a-file"), "")
	write(t, filepath.Join(c.store, treesDir, ".hidden", "file"), "")
	held, err := other.Hold([]DiffID{id("held")})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	// A directory of another user refuses what this one does, too.
	if err := os.Chmod(other.Dir(), 0o500); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{bound, false} {
		_, left, err := c.SweepAll([]DiffID{id("kept")})
		if err != nil || closed != slices.Equal(left, []string{other.Dir()}) {
			t.Errorf("closed %v: left %q, %v", closed, left, err)
		}
		os.Chmod(other.Dir(), 0o700)
	}
	if len(entries(t, c)) != 1 || len(entries(t, other)) != 2 {
		t.Errorf("left %q and %q", entries(t, c), entries(t, other))
	}
	if len(entries(t, outside)) != 1 {
		t.Error("a sweep followed a link")
	}
	os.Chmod(c.Dir(), 0o500) // of the own map: an error
	defer os.Chmod(c.Dir(), 0o700)
	if _, left, err := c.SweepAll(nil); (err == nil) == bound || len(left) > 0 {
		t.Errorf("own cache: left %q, %v", left, err)
	}
}
