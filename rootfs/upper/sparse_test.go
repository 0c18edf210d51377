package upper_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/layers"
	"demesne/rootfs/upper"
)

func layerOf(t *testing.T, dir *os.File) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := upper.WriteLayer(dir, &b, upper.LayerOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWriteLayerTimes checks that times are truncated to seconds. A rounded time would make compiled files look older
// than their sources for ever.
func TestWriteLayerTimes(t *testing.T) {
	dir := nstest.Dir(t)
	at := time.Unix(1_700_000_000, 900_000_000)
	name := dir.Name() + "/f"
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chtimes(name, at, at)); err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(bytes.NewReader(layerOf(t, dir))).Next()
	if err != nil || h.ModTime.Unix() != at.Unix() {
		t.Errorf("%v, %v, want %v", h.ModTime, err, at)
	}
}

// TestWriteLayerSparse checks that holes take no space in a layer, and that archive/tar and GNU tar read the file.
func TestWriteLayerSparse(t *testing.T) {
	dir := nstest.Dir(t)
	const size, at = 3<<30 + 17, 1<<30 + 5
	odd := "odd \n\xff " + string(bytes.Repeat([]byte("long"), 50))
	in := func(name string) string { return dir.Name() + "/" + name }
	f, err := os.Create(in(odd))
	if err == nil {
		_, err = f.WriteAt([]byte("data"), at)
	}
	if err = errors.Join(err, f.Truncate(size), f.Close(), os.Link(in(odd), in("twin")), os.WriteFile(in("empty"), nil, 0o640), os.Truncate(in("empty"), 900<<30),
		os.WriteFile(in("plain"), []byte("plain"), 0o600), os.Chmod(in("empty"), os.ModeSetuid|0o751), unix.Setxattr(in("empty"), "user.mine", []byte("my=\nown"), 0),
		os.Chtimes(in("empty"), time.Unix(-9, 5), time.Unix(-9, 5))); err != nil {
		t.Fatal(err)
	}
	layer := layerOf(t, dir)
	if len(layer) > 64<<10 {
		t.Fatalf("%d bytes", len(layer))
	}
	sizes := map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeLink {
			continue
		}
		sizes[h.Name] = h.Size
		switch {
		case h.Name == "empty" && (h.Mode != 0o4751 || h.ModTime.Unix() != -9 || h.PAXRecords["SCHILY.xattr.user.mine"] != "my=\nown"):
			t.Errorf("%+v", h)
		case h.Size == size:
			if _, err := io.CopyN(io.Discard, r, at); err != nil {
				t.Fatal(err)
			}
			rest := make([]byte, 6)
			if _, err := io.ReadFull(r, rest); err != nil || string(rest) != "data\x00\x00" {
				t.Errorf("%q, %v", rest, err)
			}
		}
	}
	if sizes["empty"] != 900<<30 || sizes["plain"] != 5 || sizes[odd]+sizes["twin"] != size {
		t.Errorf("%v", sizes)
	}
	to := t.TempDir()
	c := exec.Command("tar", "-xf", "-", "-C", to)
	c.Stdin = bytes.NewReader(layer)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	var st unix.Stat_t
	if err := unix.Stat(to+"/"+odd, &st); err != nil || st.Size != size || st.Nlink != 2 || st.Blocks*512 > 1<<20 {
		t.Errorf("by tar: %+v, %v", st, err)
	}
}

// TestWriteLayerManyHoles checks that a sandbox cannot make its layer much larger than its files on disk.
func TestWriteLayerManyHoles(t *testing.T) {
	dir := nstest.Dir(t)
	f, err := os.Create(dir.Name() + "/f")
	for at := int64(0); at < 15_000 && err == nil; at++ {
		_, err = f.WriteAt([]byte("x"), at<<30)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := upper.WriteLayer(dir, &b, upper.LayerOptions{}); err == nil || b.Len() > 1<<20 {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

// TestWriteLayerOwners checks that a layer has the owners that unpacking recorded, and not the record.
func TestWriteLayerOwners(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Dir(t)
	for name, value := range map[string]string{"both": layers.RecordOwner(1000, 70000), "group": layers.RecordOwner(layers.NoID, 5), "bad": "x"} {
		file := dir.Name() + "/" + name
		if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Setxattr(file, layers.OwnerAttr, []byte(value), 0)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][2]int{"both": {1000, 70000}, "group": {0, 5}, "bad": {0, 0}}
	for r := tar.NewReader(bytes.NewReader(layerOf(t, dir))); len(want) > 0; {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{h.Uid, h.Gid}; got != want[h.Name] || h.PAXRecords["SCHILY.xattr."+layers.OwnerAttr] != "" {
			t.Errorf("%s: %v, %v", h.Name, got, h.PAXRecords)
		}
		delete(want, h.Name)
	}
}

// TestWriteLayerBounded checks that a layer that could not be unpacked is refused, with the name of a file.
func TestWriteLayerBounded(t *testing.T) {
	write := func(size int64, data int) error {
		dir := nstest.Dir(t)
		err := errors.Join(os.WriteFile(dir.Name()+"/a", nil, 0o644), os.Truncate(dir.Name()+"/a", size), os.WriteFile(dir.Name()+"/b", bytes.Repeat([]byte("x"), data), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		_, err = upper.WriteLayer(dir, io.Discard, upper.LayerOptions{Bounded: true})
		return err
	}
	for size, data := range map[int64]int{64 << 30: 0, 63 << 30: 1 << 20} {
		if err := write(size, data); err != nil {
			t.Errorf("%d and %d bytes: %v", size, data, err)
		}
	}
	for size, data := range map[int64]int{64<<30 + 1: 0, 64 << 30: 1 << 20, 1 << 40: 0} {
		if err := write(size, data); err == nil || !strings.Contains(err.Error(), `"a": a layer with`) {
			t.Errorf("%d and %d bytes: %v", size, data, err)
		}
	}
}
