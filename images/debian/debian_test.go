package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// entity makes a key.
func entity(t *testing.T) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("test", "", "test@example.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func sign(t *testing.T, e *openpgp.Entity, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, e.PrivateKey, nil)
	if err == nil {
		w.Write([]byte(text))
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestVerify checks which messages are accepted as a release.
func TestVerify(t *testing.T) {
	ours, other := entity(t), entity(t)
	ring := openpgp.EntityList{ours}
	const date = "Date: Sat, 12 Sep 2026 07:55:41 UTC\n"
	const text = "Suite: stable\n" + date
	good := sign(t, ours, text)
	late := text + "Valid-Until: Sat, 19 Sep 2026 07:55:41 UTC\n"
	at := time.Date(2026, 9, 13, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		what    string
		message []byte
		at      time.Time
		ok      bool
	}{
		{"signed", good, at, true},
		{"valid for some days", sign(t, ours, late), at, true},
		{"valid no more", sign(t, ours, late), at.AddDate(0, 1, 0), false},
		{"valid no more, said first", sign(t, ours, "Valid-Until: Sat, 19 Sep 2026 07:55:41 UTC\n"+text), at.AddDate(0, 1, 0), false},
		{"not the newest", good, at.AddDate(0, 6, 0), true},
		{"old", good, at.AddDate(0, 7, 0), false},
		{"years old", good, at.AddDate(10, 0, 0), false},
		{"of oldstable", sign(t, ours, "Suite: oldstable\n"+date), at.AddDate(2, 0, 0), true},
		{"of oldstable, old", sign(t, ours, "Suite: oldstable\n"+date), at.AddDate(2, 1, 0), false},
		{"of tomorrow", good, at.AddDate(0, 0, -1), true},
		{"of next week", good, at.AddDate(0, 0, -7), false},
		{"without a date", sign(t, ours, "Suite: stable\n"), at, false},
		{"with another date in a later part", sign(t, ours, "Suite: stable\n\n"+date), at, false},
		{"with an end that cannot be read", sign(t, ours, text+"Valid-Until: always\n"), at, false},
		{"signed with another key", sign(t, other, text), at, false},
		{"changed", bytes.Replace(good, []byte("stable"), []byte("stabbe"), 1), at, false},
		{"followed by text", append(slices.Clone(good), "Suite: other\n"...), at, false},
		{"not signed", []byte(text), at, false},
		{"empty", nil, at, false},
	} {
		plain, err := verify(c.message, ring, c.at)
		if (err == nil) != c.ok || c.ok && !strings.Contains(string(plain), "Suite: ") {
			t.Errorf("%s: %q, %v", c.what, plain, err)
		}
	}
}

// TestKeys checks that the keys of two releases can be read.
func TestKeys(t *testing.T) {
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(keys))
	if err != nil || len(ring) != 6 {
		t.Fatalf("%d keys, %v", len(ring), err)
	}
}

// TestPackages checks that an index is taken by its digest, first by a name that does not change.
func TestPackages(t *testing.T) {
	const index = "Package: a\nEssential: yes\nFilename: pool/a.deb\nSize: 1\nSHA256: " // and the digest
	digest := strings.Repeat("0", 64)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, index+digest+"\n")
	w.Close()
	sum := sha256.Sum256(z.Bytes())
	hexSum := hex.EncodeToString(sum[:])
	served := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := served[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer srv.Close()
	const dir = "/dists/stable/main/binary-amd64/"
	for _, c := range []struct {
		what, path, content string
		ok                  bool
	}{
		{"by digest", dir + "by-hash/SHA256/" + hexSum, z.String(), true},
		{"by name", dir + "Packages.gz", z.String(), true},
		{"changed", dir + "Packages.gz", strings.Repeat("x", z.Len()), false},
		{"longer", dir + "Packages.gz", z.String() + "x", false},
		{"missing", "/other", "", false},
	} {
		clear(served)
		served[c.path] = c.content
		r := &release{mirror: srv.URL, suite: "stable", files: map[string]file{}}
		if err := r.parse(fmt.Sprintf("Suite: stable\nSHA256:\n %s %d main/binary-amd64/Packages.gz\n", hexSum, z.Len())); err != nil {
			t.Fatal(err)
		}
		text, err := r.packages(context.Background(), "amd64")
		if (err == nil) != c.ok || c.ok && text != index+digest+"\n" {
			t.Errorf("%s: %q, %v", c.what, text, err)
		}
	}
	r := &release{suite: "stable", files: map[string]file{}}
	for _, text := range []string{"Suite: other\nSHA256:\n a 1 b\n", "Suite: stable\n", "Suite: stable\nSHA256:\n a x b\n"} {
		if r.parse(text) == nil {
			t.Errorf("accepted: %q", text)
		}
	}
}

// TestChoose checks which packages a system gets.
func TestChoose(t *testing.T) {
	text := ""
	add := func(name, fields string) {
		text += fmt.Sprintf("Package: %s\nFilename: pool/%s.deb\nSize: 1\nSHA256: %064d\n%s\n", name, name, 0, fields)
	}
	add("base", "Essential: yes\nPre-Depends: awk\nDepends: libc (>= 2), missing | lib:any\n")
	add("gawk", "Priority: optional\nProvides: awk\n")
	add("mawk", "Priority: required\nProvides: awk (= 1)\n")
	add("libc", "Depends: base\n")
	add("lib", "")
	add("unused", "")
	add("broken", "Depends: nowhere\n")
	x, err := readIndex(text)
	if err != nil {
		t.Fatal(err)
	}
	packs, err := x.choose()
	var names []string
	for _, p := range packs {
		names = append(names, p.name)
	}
	if got := strings.Join(names, " "); err != nil || got != "base lib libc mawk" {
		t.Errorf("%s, %v", got, err)
	}
	for _, name := range []string{"nowhere", "broken"} {
		if _, err := x.choose(name); err == nil {
			t.Errorf("chosen: %s", name)
		}
	}
	if _, err := readIndex("Package: a\nFilename: a\nSize: 1\nSHA256: short\n"); err == nil {
		t.Error("an entry without a digest")
	}
}

// debOf makes a .deb with these files.
func debOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range headers {
		content := strings.Repeat("x", int(h.Size))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, content)
	}
	w.Close()
	deb := bytes.NewBufferString(arMagic)
	for _, m := range []struct{ name, content string }{{"debian-binary", "2.0\n"}, {"odd", "abc"}, {"data.tar", data.String()}} {
		fmt.Fprintf(deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644", len(m.content), m.content)
		if len(m.content)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	return deb.Bytes()
}

// TestUnpack checks that a .deb cannot write outside of its root, and that a link such as /bin stays.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "root")
	if err := os.MkdirAll(at+"/usr/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	os.Symlink("usr/bin", at+"/bin")
	root, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	none := func(string) bool { return false }
	good := debOf(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "./bin/a", Mode: 0o4755, Size: 3},
		tar.Header{Typeflag: tar.TypeLink, Name: "./usr/b", Linkname: "./bin/a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./usr/c", Linkname: "b"},
		tar.Header{Typeflag: tar.TypeReg, Name: "../../outside", Size: 1})
	if err := unpack(good, root, none); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(at + "/usr/bin/a"); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
	for _, h := range [][]tar.Header{
		{{Typeflag: tar.TypeSymlink, Name: "out", Linkname: "../.."}, {Typeflag: tar.TypeReg, Name: "out/escaped", Size: 1}},
		{{Typeflag: tar.TypeSymlink, Name: "out", Linkname: dir}, {Typeflag: tar.TypeReg, Name: "out/escaped", Size: 1}},
		{{Typeflag: tar.TypeLink, Name: "passwd", Linkname: "../../etc/passwd"}},
	} {
		if err := unpack(debOf(t, h...), root, none); err == nil {
			t.Errorf("unpacked: %v", h)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("outside: %v", left)
	}
}

// FuzzDeb checks that no input crashes the reader.
func FuzzDeb(f *testing.F) {
	f.Add([]byte(arMagic))
	f.Add([]byte(arMagic + fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", "data.tar.xz", 0, 0, 0, "100644", 7)))
	f.Fuzz(func(t *testing.T, deb []byte) {
		if r, err := dataOf(deb); err == nil {
			tar.NewReader(r).Next()
		}
		paragraphs(string(deb))
		dependencies(string(deb))
	})
}
