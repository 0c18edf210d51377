package tarball

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// pass relays a stream and returns what arrives at the other end.
func pass(stream []byte, l Limits) (dir bool, entries []tar.Header, content string, err error) {
	y, err := NewRelay(bytes.NewReader(stream), l)
	if err != nil {
		return false, nil, "", err
	}
	var out bytes.Buffer
	if _, err := y.Pass(&out); err != nil {
		return y.Dir, nil, "", err
	}
	tr := tar.NewReader(&out)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return y.Dir, entries, content, nil
		}
		if err != nil {
			return y.Dir, nil, "", err
		}
		b, _ := io.ReadAll(tr)
		entries, content = append(entries, *h), content+string(b)
	}
}

func TestRelay(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/a", "one", 0o755)
	write(t, src+"/d/"+strings.Repeat("long", 50), "two", 0o640)
	if err := os.Symlink("/etc/passwd", src+"/d/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/a"} {
		var stream bytes.Buffer
		if _, err := Pack(&stream, from, name, "D", Limits{}); err != nil {
			t.Fatal(err)
		}
		dir, entries, content, err := pass(stream.Bytes(), Limits{})
		if err != nil || dir != (name == "d") {
			t.Errorf("%s: a directory: %t, %v", name, dir, err)
		}
		if want := map[string]int{"d": 4, "d/a": 1}[name]; len(entries) != want || !strings.Contains(content, "one") {
			t.Errorf("%s: %d entries, %q", name, len(entries), content)
		}
	}
}

// TestRelayHostile: streams that Pack never writes (F2, F17, P16, P17).
func TestRelayHostile(t *testing.T) {
	one := func(h tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h.Format = tar.FormatPAX
		w.WriteHeader(&h)
		w.Write(make([]byte, h.Size))
		w.Close()
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		stream []byte
		want   error
	}{
		"parent":    {one(tar.Header{Name: "../x", Typeflag: tar.TypeReg}), errBadName},
		"absolute":  {one(tar.Header{Name: "/x", Typeflag: tar.TypeReg}), errBadName},
		"deep":      {one(tar.Header{Name: strings.Repeat("d/", maxDepth+2), Typeflag: tar.TypeDir}), errBadName},
		"large":     {one(tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 11}), errTooLarge},
		"empty":     {make([]byte, endMark), io.EOF},
		"nothing":   {nil, io.ErrUnexpectedEOF},
		"cut short": {one(tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 9})[:1028], io.ErrUnexpectedEOF},
	} {
		if _, _, _, err := pass(c.stream, Limits{Bytes: 10, Entries: 2}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, kind := range []byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeLink} {
		_, entries, _, err := pass(one(tar.Header{Name: "x", Typeflag: kind, Linkname: "/etc/passwd"}), Limits{})
		if err != nil || len(entries) > 0 {
			t.Errorf("type %c: %v, %v", kind, entries, err)
		}
	}
	_, entries, _, err := pass(one(tar.Header{
		Name: "x", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 7, Uname: "root", PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"},
	}), Limits{})
	if err != nil || len(entries) != 1 || entries[0].Mode != 0o755 || entries[0].Uid != 0 || entries[0].Uname != "" || len(entries[0].PAXRecords) > 0 {
		t.Errorf("%+v, %v", entries, err)
	}
}

func FuzzRelay(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stream []byte) {
		_, entries, content, err := pass(stream, Limits{Bytes: 1 << 16, Entries: 100})
		if err == nil && (len(entries) > 100 || len(content) > 1<<16) {
			t.Errorf("%d entries, %d bytes", len(entries), len(content))
		}
	})
}

// TestMeter checks that a meter counts the files and bytes of a copy in each direction.
func TestMeter(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/small", "one", 0o600)
	write(t, src+"/d/large", strings.Repeat("x", 1<<20), 0o600)
	const files, size = 2, 3 + 1<<20
	sees := func(what string, m *Meter) {
		t.Helper()
		if f, b := m.Moved(); f != files || b != size {
			t.Errorf("%s: %d files, %d bytes", what, f, b)
		}
	}
	var stream, passed bytes.Buffer
	packing, passing, unpacking := &Meter{}, &Meter{}, &Meter{}
	if _, err := Pack(&stream, from, "d", "d", Limits{Meter: packing}); err != nil {
		t.Fatal(err)
	}
	sees("pack", packing)
	y, err := NewRelay(&stream, Limits{Meter: passing})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Pass(&passed); err != nil {
		t.Fatal(err)
	}
	sees("relay", passing)
	to, _ := rooted(t)
	if _, err := Unpack(&passed, to, Options{Limits: Limits{Meter: unpacking}}); err != nil {
		t.Fatal(err)
	}
	sees("unpack", unpacking)
}
