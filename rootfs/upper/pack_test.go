package upper_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/upper"
)

// packed returns a line for each entry of the layer made of an upper.
func packed(t *testing.T, dir *os.File) (lines []string, err error) {
	t.Helper()
	var b bytes.Buffer
	n, err := upper.WriteLayer(dir, &b, upper.LayerOptions{Skip: func(path string) bool { return path == "dev" }})
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		lines = append(lines, fmt.Sprintf("%c %s %o %s %.8s", h.Typeflag, h.Name, h.Mode, h.Linkname, text))
	}
	if len(lines) != n {
		t.Errorf("%d entries, and it says %d", len(lines), n)
	}
	slices.Sort(lines)
	return lines, nil
}

// TestWriteLayer checks that the layer describes the writes of a tree over an image.
func TestWriteLayer(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	low := nstest.Layer(t, map[string]string{"gone": "x", "old/x": "low", "dir/a": "a"})
	kept := nstest.Dir(t)
	box := tree(t, low, kept)
	in := func(name string) string { return box.Root + "/" + name }
	if err := errors.Join(os.Remove(in("gone")), os.RemoveAll(in("old")), os.Mkdir(in("old"), 0o750), os.WriteFile(in("old/y"), []byte("new"), 0o640),
		os.WriteFile(in("dir/a"), []byte("changed"), 0o600), os.Chmod(in("dir/a"), 0o755|os.ModeSetuid), os.Symlink("/etc/shadow", in("dir/link")), unix.Mkfifo(in("dir/pipe"), 0o600),
		os.WriteFile(in("dir/odd\n\xff"), nil, 0o600), unix.Setxattr(in("dir/a"), "user.mine", []byte("kept"), 0),
	); err != nil {
		t.Fatal(err)
	}
	dir, err := rootfs.KeptUpper(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	lines, err := packed(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"0 .wh.gone 0  ", "5 old/ 750  ", "0 old/.wh..wh..opq 0  ", "0 old/y 640  new", "0 dir/a 4755  changed", "2 dir/link 777 /etc/shadow ", "6 dir/pipe 600  ",
		"0 dir/odd\n\xff 600  ",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q in %q", want, lines)
		}
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, " dev") }) {
		t.Errorf("what is skipped is in it: %q", lines)
	}
	var b bytes.Buffer
	if _, err := upper.WriteLayer(dir, &b, upper.LayerOptions{}); err != nil || !bytes.Contains(b.Bytes(), []byte("SCHILY.xattr.user.mine=kept")) || bytes.Contains(b.Bytes(), []byte("user.overlay")) {
		t.Errorf("attributes: %v", err)
	}
}

// TestWriteLayerHostile checks that a sandbox's file names affect only its own layer.
func TestWriteLayerHostile(t *testing.T) {
	dir := nstest.Dir(t)
	in := func(name string) string { return dir.Name() + "/" + name }
	if err := errors.Join(os.Mkdir(in("d"), 0o700), os.Symlink("/etc", in("d/etc")), os.WriteFile(in("d/f"), []byte("f"), 0o600), os.Link(in("d/f"), in("d/twin"))); err != nil {
		t.Fatal(err)
	}
	lines, err := packed(t, dir)
	want := []string{"0 d/f 600  f", "1 d/twin 600 d/f ", "2 d/etc 777 /etc ", "5 d/ 700  "}
	other := []string{"0 d/twin 600  f", "1 d/f 600 d/twin ", "2 d/etc 777 /etc ", "5 d/ 700  "}
	if err != nil || !slices.Equal(lines, want) && !slices.Equal(lines, other) {
		t.Errorf("%q, %v", lines, err)
	}
	for _, name := range []string{".wh.x", "d/.wh..wh..opq"} {
		if err := os.WriteFile(in(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if lines, err := packed(t, dir); err == nil || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
		os.Remove(in(name))
	}
}

// TestWriteLayerOrder checks that the file system does not matter to the order of entries, that times are bounded, and
// that bare directories are in the layer only if something below them is.
func TestWriteLayerOrder(t *testing.T) {
	top := t.TempDir()
	var want []string
	for _, d := range []string{"bare", "full", "z"} {
		if err := os.Mkdir(top+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 600 { // more than one read of the directory
		name := fmt.Sprintf("z/%03d-%s", i*7%600, strings.Repeat("n", 100))
		want = append(want, name)
		if err := os.WriteFile(top+"/"+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(top+"/full/x", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	want = append([]string{"z/", "full/", "full/x"}, want...)
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var b bytes.Buffer
	limit := time.Unix(1000, 0)
	n, err := upper.WriteLayer(dir, &b, upper.LayerOptions{NotAfter: limit, Bare: func(h *tar.Header) bool { return h.Name != "z/" }})
	if err != nil || n != len(want) {
		t.Errorf("%d entries, want %d: %v", n, len(want), err)
	}
	var got []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		got = append(got, h.Name)
		if !h.ModTime.Equal(limit) {
			t.Errorf("%s: time %v", h.Name, h.ModTime)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %.200q, want %.200q", got, want)
	}
}
