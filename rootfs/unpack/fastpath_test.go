package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/umoci/oci/layer"
	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/layers"
)

// TestQuickLikeUmoci checks that the fast path unpacks an archive exactly as umoci does, to the nanosecond. Each
// archive has an entry that the fast path must recognize and leave alone.
func TestQuickLikeUmoci(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for name, entries := range map[string][]entry{
		"plain": {{name: "./", kind: dir, mode: 0o700}, {name: "a/", kind: dir, mode: 0o2775}, {name: "a/f", body: "x", mode: 0o4751, uid: 7, gid: 8},
			{name: "a/l", kind: symlink, link: "../none"}, {name: "a/b", kind: dir, mode: 0o1777}, {name: "a/b/f"}, {name: "g", body: "y"}, {name: "a/late", body: "z"}},
		"without directories":     {{name: "a/b/c/f", body: "x"}, {name: "a/b/g", body: "y"}, {name: "a/b", kind: dir, mode: 0o711}},
		"a name again":            {{name: "f", body: "1"}, {name: "f", body: "22"}, {name: "f", kind: dir}, {name: "f/g"}, {name: "f", kind: symlink, link: "g"}},
		"through a link":          {{name: "d", kind: dir}, {name: "l", kind: symlink, link: "d"}, {name: "l/f", body: "x"}, {name: "l/s", kind: symlink, link: "f"}, {name: "l/e", kind: dir}},
		"through an absolute one": {{name: "l", kind: symlink, link: "/d"}, {name: "l/f", body: "x"}},
		"a link to the directory": {{name: "d", kind: dir}, {name: "d/f"}, {name: "d", kind: symlink, link: "e"}, {name: "d/f", body: "2"}},
		"whiteouts": {{name: "d", kind: dir}, {name: "d/f", body: "x"}, {name: "d/.wh.f"}, {name: "d/f", body: "y"}, {name: "d/.wh.gone"},
			{name: "d/gone/f", body: "x"}, {name: "o", kind: dir}, {name: "o/f", body: "x"}, {name: "o/.wh..wh..opq"}, {name: "o/.wh.f"}, {name: "o/g", body: "x"}},
		"links and nodes": {{name: "d", kind: dir}, {name: "d/f", body: "x"}, {name: "d/h", kind: link, link: "d/f"}, {name: "d/p", kind: tar.TypeFifo}, {name: "d/n", kind: tar.TypeChar}},
		"attributes":      {{name: "d", kind: dir, xattrs: map[string]string{"user.d": "1"}}, {name: "d/f", body: "x", xattrs: map[string]string{"user.x": "2"}}, {name: "d/g", body: "y"}},
		"odd names":       {{name: "/abs/f", body: "x"}, {name: "d//./e/../f", body: "y"}, {name: "./d/./g", body: "z"}, {name: "d/h/", kind: dir}},
	} {
		t.Run(name, func(t *testing.T) {
			data := archiveAt(t, time.Unix(1_000_000_000, 123_456_789), entries)
			quick, slow := t.TempDir(), t.TempDir()
			if err := within(quick, func() error { return extract(bytes.NewReader(data), here()) }); err != nil {
				t.Fatal(err)
			}
			if err := within(slow, func() error { return byUmoci(bytes.NewReader(data)) }); err != nil {
				t.Fatal(err)
			}
			if got, want := described(t, quick), described(t, slow); !slices.Equal(got, want) {
				t.Errorf("is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestQuickIsUsed checks that only the root, hard links and whiteouts of a benign layer bypass the fast path.
func TestQuickIsUsed(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	err := within(t.TempDir(), func() error {
		q := newQuick(&contents{Reader: tar.NewReader(bytes.NewReader(nil)), buf: make([]byte, block)})
		defer q.leave()
		for _, c := range []struct {
			entry
			quick bool
		}{{entry{name: "./", kind: dir}, false}, {entry{name: "d/", kind: dir}, true}, {entry{name: "d/f"}, true}, {entry{name: "d/s", kind: symlink, link: "f"}, true},
			{entry{name: "d/h", kind: link, link: "d/f"}, false}, {entry{name: "d/.wh.x"}, false}, {entry{name: "e/f"}, false}, {entry{name: "d/f"}, false}} {
			if made, err := q.make(c.header()); made != c.quick || err != nil {
				t.Errorf("%q: made is %v, %v", c.name, made, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// here returns a filter for the ids of this user namespace.
func here() *filter {
	f := newFilter()
	f.owners.uid, f.owners.gid, _ = layers.OwnMap()
	return f
}

// byUmoci is extract without the fast path.
func byUmoci(r io.Reader) error {
	umoci := layer.NewTarExtractor(&layer.UnpackOptions{OnDiskFormat: onDisk})
	f := here()
	for archive := tar.NewReader(r); ; {
		hdr, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if v, err := f.check(hdr); err != nil || v == leave {
			return fmt.Errorf("%q: %v, %v", hdr.Name, v, err)
		}
		if err := umoci.UnpackEntry(".", hdr, archive); err != nil {
			return err
		}
	}
}

// archiveAt returns a tar of entries with that modification time.
func archiveAt(t *testing.T, then time.Time, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.header()
		h.ModTime = then
		then = then.Add(time.Second)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(e.body))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// described returns a line for each file of a tree. It leaves out the times of directories that no entry made.
func described(t *testing.T, root string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		text, _ := os.Readlink(name)
		if d.Type().IsRegular() {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text = string(b)
		}
		times := fmt.Sprint(st.Mtim)
		if time.Since(time.Unix(st.Mtim.Unix())) < time.Hour {
			times = "now"
		}
		list := make([]byte, 1024)
		n, _ := unix.Llistxattr(name, list)
		lines = append(lines, fmt.Sprintf("%s %o %d:%d %d links, rdev %d, %s, %q, xattrs %q", name[len(root):], st.Mode, st.Uid, st.Gid, st.Nlink, st.Rdev, times, text, list[:n]))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
