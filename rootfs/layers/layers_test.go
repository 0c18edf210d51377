package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissing(t *testing.T) {
	c := newCache(t)
	a, b, bad := id("a"), id("b"), DiffID("sha256:../../etc")
	if got := c.Missing([]DiffID{a, a, b}); !slices.Equal(got, []DiffID{a, b}) {
		t.Errorf("an empty store misses %v", got)
	}
	put(t, c, a)
	for _, tt := range []struct{ ids, want []DiffID }{
		{nil, nil},
		{[]DiffID{a}, nil},
		{[]DiffID{b, a, b}, []DiffID{b}},
		{[]DiffID{bad, "", "sha512:00", a}, []DiffID{bad, "", "sha512:00"}},
	} {
		if got := c.Missing(tt.ids); !slices.Equal(got, tt.want) {
			t.Errorf("Missing(%v) = %v, want %v", tt.ids, got, tt.want)
		}
	}
}

func TestMissingWhileWritten(t *testing.T) {
	c := newCache(t)
	w, err := c.Begin(t.Context(), id("a"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Missing([]DiffID{id("a")}) == nil {
		t.Error("a layer is there before it is complete")
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, c); got != nil {
		t.Errorf("an abort left %q", got)
	}
}

// TestCacheIsNoLink checks that a foreign file in place of the cache is not entered.
func TestCacheIsNoLink(t *testing.T) {
	c, outside := newCache(t), t.TempDir()
	put(t, c, id("a"))
	if err := os.Rename(c.Dir(), outside+"/trees"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside+"/trees", c.Dir()); err != nil {
		t.Fatal(err)
	}
	if c.Missing([]DiffID{id("a")}) == nil {
		t.Error("a layer was found through a link")
	}
	if _, err := c.Sweep(nil); err == nil {
		t.Error("a sweep went through a link")
	}
	if _, err := c.Begin(t.Context(), id("b")); err == nil {
		t.Error("a writer went through a link")
	}
}

func TestBadKey(t *testing.T) {
	for _, key := range []string{"", ".", "..", "../x", "a/b"} {
		if _, err := Open(t.TempDir(), key).Begin(t.Context(), id("a")); err == nil {
			t.Errorf("key %q was taken", key)
		}
	}
}

func TestCacheIsPrivate(t *testing.T) {
	c := newCache(t)
	put(t, c, id("a"))
	info, err := os.Stat(c.Dir())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the cache is %v, %v", info.Mode(), err)
	}
	info, err = os.Stat(filepath.Join(c.Dir(), hexOf("a"), "fs"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of a layer is %v, %v", info.Mode(), err)
	}
}

func TestHold(t *testing.T) {
	c := newCache(t)
	put(t, c, id("a"))
	put(t, c, id("b"))
	var missing *MissingError
	if _, err := c.Hold([]DiffID{id("a"), id("c")}); !errors.As(err, &missing) || !slices.Equal(missing.IDs, []DiffID{id("c")}) {
		t.Errorf("holding a missing layer: %v", err)
	}
	h, err := c.Hold([]DiffID{id("b"), id("a"), id("b")})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i, want := range []DiffID{id("b"), id("a"), id("b")} {
		got, err := os.ReadFile(pathOf(h.FS[i]) + "/file")
		if err != nil || string(got) != string(want) {
			t.Errorf("FS[%d] has %q, %v; want %q", i, got, err, want)
		}
	}
	if _, err := c.Sweep(nil); err != nil {
		t.Fatal(err)
	}
	if m := c.Missing([]DiffID{id("a"), id("b")}); m != nil {
		t.Errorf("a sweep removed %v, which are held", m)
	}
	h.CloseFS()
	if _, err := c.Sweep(nil); err != nil || len(entries(t, c)) != 2 {
		t.Errorf("layers are not held after CloseFS: %v", err)
	}
	h.Close()
	h.Close()
	if freed, err := c.Sweep(nil); err != nil || freed == 0 || len(entries(t, c)) != 0 {
		t.Errorf("a sweep of unheld layers freed %d, %v", freed, err)
	}
}

// TestHoldOpaque checks that a layer that is opaque at its root hides the layers below it.
func TestHoldOpaque(t *testing.T) {
	c := newCache(t)
	for _, name := range []string{"a", "b", "c"} {
		put(t, c, id(name))
	}
	fs := filepath.Join(c.Dir(), hexOf("b"), "fs")
	if err := unix.Setxattr(fs, "user.overlay.opaque", []byte("y"), 0); errors.Is(err, unix.ENOTSUP) && os.Getenv("CI") == "" {
		t.Skip("needs a file system with user.* attributes")
	} else if err != nil {
		t.Fatal(err)
	}
	h, err := c.Hold([]DiffID{id("a"), id("b"), id("c")})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if len(h.FS) != 2 || h.FS[0].Name() != fs {
		t.Errorf("of three layers there are %v", h.FS)
	}
	h.CloseFS()
	if _, err := c.Sweep(nil); err != nil || len(entries(t, c)) != 3 {
		t.Errorf("what is hidden is not held: %q, %v", entries(t, c), err)
	}
}

// TestHoldNoLink checks that a layer whose fs is a link is an error, and that Hold does not return the link's
// target.
func TestHoldNoLink(t *testing.T) {
	c := newCache(t)
	put(t, c, id("a"))
	fs := filepath.Join(c.Dir(), hexOf("a"), "fs")
	if err := os.RemoveAll(fs); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", fs); err != nil {
		t.Fatal(err)
	}
	if h, err := c.Hold([]DiffID{id("a")}); err == nil {
		t.Errorf("held %v", h.FS[0].Name())
	}
}

func TestKey(t *testing.T) {
	one := func(host uint32) []IDMap { return []IDMap{{0, host, 1}} }
	many := []IDMap{{0, 1000, 1}, {1, 100000, 65535}}
	if got := Key(one(1000), one(100)); got != "single-1000-100" {
		t.Errorf("Key of one id = %q", got)
	}
	keys := map[string]string{}
	for name, key := range map[string]string{
		"one": Key(one(1000), one(1000)), "another": Key(one(1001), one(1000)), "another group": Key(one(1000), one(1001)),
		"many": Key(many, many), "many and one": Key(many, one(1000)), "shifted": Key([]IDMap{{0, 100000, 65536}}, many),
		"none": Key(nil, nil), "split": Key([]IDMap{{0, 1000, 1}, {1, 100000, 65534}}, many),
	} {
		if other, ok := keys[key]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		keys[key] = name
		if _, err := Open(t.TempDir(), key).create(); err != nil {
			t.Errorf("key %q names no directory: %v", key, err)
		}
	}
	if Key(many, many) != Key([]IDMap{many[1], many[0]}, many) {
		t.Error("the order of extents matters")
	}
}

func TestOwnKey(t *testing.T) {
	uid, gid, err := OwnMap()
	if err != nil || len(uid) == 0 || len(gid) == 0 {
		t.Fatal(uid, gid, err)
	}
	if key, err := OwnKey(); err != nil || key != Key(uid, gid) {
		t.Errorf("OwnKey() = %q, %v", key, err)
	}
}

func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func TestSize(t *testing.T) {
	c := newCache(t)
	put(t, c, id("a"))
	if n, err := c.size(id("a")); n != 4096 || err != nil {
		t.Errorf("Size = %d, %v", n, err)
	}
	if _, err := c.size(id("b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Size of a missing layer: %v", err)
	}
	if _, err := c.size("sha256:../x"); err == nil {
		t.Error("Size of no DiffID")
	}
	write(t, filepath.Join(c.Dir(), hexOf("a"), sizeFile), "many")
	if _, err := c.size(id("a")); err == nil {
		t.Error("a size that is no number was read")
	}
}

// TestAll checks that All considers each cache of a store separately, as layers are unpacked for one id map.
func TestAll(t *testing.T) {
	c := newCache(t)
	if _, ok := All(c.store, []DiffID{id("a")}); ok {
		t.Error("a store without caches has a layer")
	}
	put(t, c, id("a"))
	put(t, c, id("b"))
	put(t, Open(c.store, "map-1"), id("c"))
	put(t, c, id("both"))
	put(t, Open(c.store, "map-1"), id("both"))
	for _, tt := range []struct {
		ids  []DiffID
		disk int64
		ok   bool
	}{
		{[]DiffID{id("a"), id("b"), id("a")}, 8192, true}, {[]DiffID{id("c")}, 4096, true},
		{[]DiffID{id("both")}, 8192, true}, {[]DiffID{id("both"), id("a")}, 8192, true},
		{[]DiffID{id("a"), id("c")}, 0, false}, {[]DiffID{"sha256:../x"}, 0, false},
	} {
		if disk, ok := All(c.store, tt.ids); disk != tt.disk || ok != tt.ok {
			t.Errorf("%v: %d, %v", tt.ids, disk, ok)
		}
	}
}

func TestDiffID(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		id   DiffID
		good bool
	}{
		{DiffID("sha256:" + hex), true}, {DiffID(hex), false}, {DiffID("sha512:" + hex), false}, {DiffID("sha256:" + hex[1:]), false},
		{DiffID("sha256:" + hex + "0"), false}, {DiffID("sha256:" + strings.ToUpper(hex)), false}, {"", false}, {"sha256:", false},
		{DiffID("sha256:../" + hex[3:]), false}, {DiffID("sha256:" + hex[1:] + "\n"), false},
	} {
		if err := tt.id.Validate(); (err == nil) != tt.good {
			t.Errorf("%q: %v", tt.id, err)
		}
	}
}
