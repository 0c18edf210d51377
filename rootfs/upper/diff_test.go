package upper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

// mark makes directories of a layer opaque, as overlayfs does.
func mark(t *testing.T, layer *os.File, names ...string) *os.File {
	t.Helper()
	for _, name := range names {
		if err := unix.Setxattr(filepath.Join(layer.Name(), name), "user.overlay.opaque", []byte("y"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return layer
}

func readable(t *testing.T, layers ...*os.File) (out []*os.File) {
	t.Helper()
	for _, l := range layers {
		f, err := os.Open(l.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		out = append(out, f)
	}
	return out
}

func TestDiff(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	bottom := nstest.Layer(t, map[string]string{"a": "a", "d/x": "x", "d/y": "y", "e/f": "f", "l": "→d", "was/here": ""})
	top := mark(t, nstest.Layer(t, map[string]string{"b": "b", "a": "!", "e/g": "g", "was": "!"}), "e")
	image := []*os.File{bottom, top} // b d/x d/y e/g l
	none := map[string]string{}
	for _, row := range []struct {
		name  string
		first *os.File
		last  *os.File
		want  string
	}{
		{"nothing", nstest.Layer(t, none), nstest.Layer(t, none), ""},
		{"added", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"new/f": "f", "d/z": "z"}), "A d/z, A new, A new/f"},
		{"modified", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"b": "x", "d/x": "y"}), "M b, M d/x"},
		{"deleted", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"b": "!", "d/x": "!"}), "D b, D d/x"},
		{"a file the image removed, again", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"a": "a", "e/f": "f", "was/here": ""}), "A a, A e/f, A was, A was/here"},
		{"removed what never was", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"a": "!", "q": "!"}), ""},
		{"a directory for a file", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"b/f": "f"}), "M b, A b/f"},
		{"a file for a directory", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"d": "d"}), "M d"},
		{"a directory made anew", nstest.Layer(t, none), mark(t, nstest.Layer(t, map[string]string{"d/z": "z"}), "d"), "M d, A d/z"},
		{"a link for a directory", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"d": "→/etc"}), "M d"},
		{"below a link", nstest.Layer(t, none), nstest.Layer(t, map[string]string{"l/x": "x"}), "M l, A l/x"},
		{"removed later", nstest.Layer(t, map[string]string{"new/f": "f", "d/x": "y"}), nstest.Layer(t, map[string]string{"new": "!", "d/x": "!"}), "D d/x"},
		{"made anew later", nstest.Layer(t, map[string]string{"new/f": "f"}), mark(t, nstest.Layer(t, map[string]string{"new/g": "g"}), "new"), "A new, A new/g"},
		{"both", nstest.Layer(t, map[string]string{"new/f": "f"}), nstest.Layer(t, map[string]string{"new/g": "g"}), "A new, A new/f, A new/g"},
		{"back again", nstest.Layer(t, map[string]string{"b": "!"}), nstest.Layer(t, map[string]string{"b": "b"}), "M b"},
	} {
		changes, all, err := Diff(image, readable(t, row.first, row.last))
		var got []string
		for _, c := range changes {
			got = append(got, string(c.Kind)+" "+c.Path)
		}
		if s := strings.Join(got, ", "); err != nil || !all || s != row.want {
			t.Errorf("%s: %q, all %t, %v; want %q", row.name, s, all, err, row.want)
		}
	}
}

// TestDiffBounded checks that many files, long names and deep directories do not exceed the limits.
func TestDiffBounded(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	deep := nstest.Layer(t, map[string]string{})
	wide, err := os.Open(nstest.Tmpfs(t)) // on a tmpfs, which is many times faster
	if err != nil {
		t.Fatal(err)
	}
	defer wide.Close()
	for i := range diffMax + 10 {
		if err := unix.Mknod(fmt.Sprintf("%s/%d", wide.Name(), i), unix.S_IFREG, 0); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(deep.Name(), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		name := strings.Repeat("d", 200)
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		unix.Close(fd)
		if fd = next; err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(fd)
	for name, up := range map[string]*os.File{"wide": wide, "deep": deep} {
		changes, all, err := Diff(nil, readable(t, up))
		if err != nil || all || len(changes) > diffMax || len(changes) == 0 {
			t.Errorf("%s: %d changes, all %t, %v", name, len(changes), all, err)
		}
	}
}
