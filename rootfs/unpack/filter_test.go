package unpack

import (
	"archive/tar"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apex/log"
	"github.com/apex/log/handlers/discard"

	"demesne/rootfs/layers"
)

func newFilter() *filter {
	ids := []layers.IDMap{{Inside: 0, Host: 100000, Size: 1}, {Inside: 1, Host: 200000, Size: 65535}}
	return &filter{limits: Limits{}.withDefaults(), owners: owners{uid: ids, gid: ids}}
}

// TestCheckNames checks names that Go's tar writer refuses to write, but an archive may have.
func TestCheckNames(t *testing.T) {
	for _, tt := range []struct {
		name, link string
		kind       byte
		want       Reason
	}{
		{"", "", tar.TypeDir, ""},
		{"/", "", tar.TypeDir, ""},
		{"./", "", tar.TypeDir, ""},
		{"./a/./b//c/", "", tar.TypeDir, ""},
		{"a/..", "", tar.TypeDir, ""},
		{"", "", tar.TypeReg, badRoot},
		{"/", "", tar.TypeReg, badRoot},
		{"a/../", "x", tar.TypeSymlink, badRoot},
		{"..", "", tar.TypeDir, climbs},
		{"/..", "", tar.TypeDir, climbs},
		{"a/../../b", "", tar.TypeReg, climbs},
		{"...", "", tar.TypeReg, ""},
		{"a..", "", tar.TypeReg, ""},
		{"a\x00b", "", tar.TypeReg, badName},
		{"a", "b\x00c", tar.TypeSymlink, badName},
		{"a", "../../x", tar.TypeSymlink, ""},
		{"a", "b/../../x", tar.TypeLink, climbs},
		{"a", "b/.wh.x/y", tar.TypeLink, badWhiteout},
		{"d/.wh./", "", tar.TypeDir, badWhiteout},
		{"d/.wh.//", "", tar.TypeReg, badWhiteout},
		{"d/.wh.../.", "", tar.TypeReg, badWhiteout},
		{"d/x/../.wh...", "", tar.TypeReg, badWhiteout},
		{"d/.wh....", "", tar.TypeReg, ""},
		{"d/.wh.x/../y", "", tar.TypeReg, ""},
		{".whx/y", "", tar.TypeReg, ""},
		{strings.Repeat("a", maxPath+1), "", tar.TypeReg, tooLong},
		{strings.Repeat("a", maxName), "", tar.TypeReg, ""},
		{strings.Repeat("../a/", maxDepth), "", tar.TypeReg, climbs},
		{strings.Repeat("a/../", maxDepth), "", tar.TypeDir, tooDeep},
	} {
		_, err := newFilter().check(&tar.Header{Name: tt.name, Linkname: tt.link, Typeflag: tt.kind})
		if reasonOf(err) != tt.want {
			t.Errorf("%.40q → %.40q: %v, want %q", tt.name, tt.link, err, tt.want)
		}
	}
}

func TestCheckTypes(t *testing.T) {
	for kind := range 256 {
		h := &tar.Header{Name: "x", Typeflag: byte(kind), Mode: -1, Devmajor: 8, Devminor: 1}
		v, err := newFilter().check(h)
		known := strings.ContainsRune("\x0001234567Sg", rune(kind))
		if known != (err == nil) {
			t.Errorf("type %q: %v", byte(kind), err)
		}
		if err == nil && v == hand && (!strings.ContainsRune("01256", rune(h.Typeflag)) || h.Mode&^0o7777 != 0 || h.Devmajor != 0 || h.Devminor != 0) {
			t.Errorf("type %q is handed on as %q, mode %o, device %d:%d", byte(kind), h.Typeflag, h.Mode, h.Devmajor, h.Devminor)
		}
		if kind == 'g' && v != leave {
			t.Error("global records are handed on")
		}
	}
}

func TestUnshared(t *testing.T) {
	for _, tt := range []struct {
		before, name string
		want         int
	}{
		{"", "/a", 1}, {"", "/a/b/c", 3}, {"/a/b", "/a/b", 0}, {"/a/b", "/a", 0}, {"/a", "/a/b", 1}, {"/a/b/c", "/a/b/d", 1},
		{"/a/b", "/a/bc", 1}, {"/a/bc", "/a/b", 1}, {"/a/b/c", "/x/y", 2}, {"/a", "/", 1}, {"/", "/a", 1}, {"/a/b", "/a/c/d/e", 3},
	} {
		if got := unshared(tt.before, tt.name); got != tt.want {
			t.Errorf("unshared(%q, %q) = %d, want %d", tt.before, tt.name, got, tt.want)
		}
	}
}

func seeds(f *testing.F) {
	for _, tt := range hostile {
		if tt.want != tooLong && tt.want != tooDeep {
			f.Add(archive(f, tt.entries...))
		}
	}
	f.Add(gnuSparse(f, 1<<20))
	f.Add(archive(f, entry{name: "x", uid: 1 << 40, mode: 0o7777, xattrs: map[string]string{"user.overlay.x": "y", "security.capability": "z"}}))
}

// FuzzFilter checks that every entry that the filter accepts is safe, whatever the archive contains.
func FuzzFilter(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, filter := tar.NewReader(bytes.NewReader(data)), newFilter()
		filter.limits = Limits{Bytes: 1 << 30, Entries: 1000}
		for n := 0; ; n++ {
			hdr, err := r.Next()
			if err != nil {
				return
			}
			v, err := filter.check(hdr)
			if err != nil {
				return
			}
			if n >= 1000 {
				t.Fatal("too many entries")
			}
			if v == hand {
				fit(t, hdr)
			}
		}
	})
}

// fit checks that an accepted entry is safe.
func fit(t *testing.T, hdr *tar.Header) {
	base := path.Base(path.Clean("/" + hdr.Name))
	of, isWhiteout := strings.CutPrefix(base, whiteout)
	switch {
	case !strings.ContainsRune("01256", rune(hdr.Typeflag)):
		t.Errorf("type %q", hdr.Typeflag)
	case !filepath.IsLocal(strings.TrimLeft("./"+hdr.Name, "/")) && !path.IsAbs(hdr.Name):
		t.Errorf("name %q", hdr.Name)
	case isWhiteout && (of == "" || of == "." || of == ".."):
		t.Errorf("whiteout %q", hdr.Name)
	case hdr.Mode&^0o7777 != 0 || hdr.Devmajor != 0 || hdr.Devminor != 0:
		t.Errorf("mode %o, device %d:%d", hdr.Mode, hdr.Devmajor, hdr.Devminor)
	case hdr.Uid < 0 || hdr.Uid > 65535 || hdr.Gid < 0 || hdr.Gid > 65535:
		t.Errorf("owner %d:%d", hdr.Uid, hdr.Gid)
	case hdr.Size < 0 || hdr.Size > 1<<30:
		t.Errorf("size %d", hdr.Size)
	}
	for name := range hdr.Xattrs {
		if name != layers.OwnerAttr && !keepXattr(name, hdr.Typeflag) {
			t.Errorf("attribute %q", name)
		}
	}
}

// FuzzExtract checks that only the archive's own directory is written to, whatever it contains. As an ordinary user
// most archives fail because an owner cannot be set, which is a valid result too.
func FuzzExtract(f *testing.F) {
	log.SetHandler(discard.Default)
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		at := t.TempDir()
		if err := os.MkdirAll(at+"/beside/layer", 0o755); err != nil {
			t.Fatal(err)
		}
		filter := newFilter()
		filter.limits = Limits{Bytes: 1 << 20, Entries: 100}
		within(at+"/beside/layer", func() error { return extract(bytes.NewReader(data), filter) })
		for _, dir := range []string{at, at + "/beside"} {
			if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || !list[0].IsDir() {
				t.Errorf("beside the layer there is %v, %v", list, err)
			}
		}
		os.Chmod(at+"/beside/layer", 0o700)
	})
}
