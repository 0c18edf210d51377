package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownProgram makes a directory with this test as one of demesne's programs.
func ownProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "demesne-test"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("demesne-test", filepath.Join(dir, "demesne-link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWriteTar checks that an archive depends on its files only, and has every directory before what is in it.
func TestWriteTar(t *testing.T) {
	files := []file{{name: "b/c", mode: 0o755, content: []byte("x")}, {name: "a", mode: 0o644}, {name: "b/l", link: "c"}}
	at := time.Unix(1700000000, 0)
	var one, two bytes.Buffer
	if err := writeTar(&one, "base", at, files); err != nil {
		t.Fatal(err)
	}
	files[0], files[2] = files[2], files[0]
	if err := writeTar(&two, "base", at, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("another order of the files gives another archive")
	}
	z, err := gzip.NewReader(&one)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" || !h.ModTime.Equal(at) {
			t.Errorf("%s: uid %d, owner %q, time %v", h.Name, h.Uid, h.Uname, h.ModTime)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "base/./ base/a base/b/ base/b/c base/b/l" {
		t.Errorf("names %s", got)
	}
}

// TestSBOM checks an SBOM by the rules of SPDX 2.3 that are easily broken: unique identifiers of allowed characters, and
// relationships between elements that exist.
func TestSBOM(t *testing.T) {
	found, err := programs(ownProgram(t))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	text, err := sbom(identity{version: "1.2.3", commit: "abc", time: time.Unix(0, 0).UTC()}, "amd64", found, "2.36")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{d.ID: true}
	add := func(id string) {
		if known[id] || !strings.HasPrefix(id, "SPDXRef-") || plain(id) != id {
			t.Errorf("identifier %q", id)
		}
		known[id] = true
	}
	for _, p := range d.Packages {
		add(p.ID)
	}
	for _, f := range d.Files {
		add(f.ID)
	}
	linked := 0
	for _, r := range d.Relationships {
		if !known[r.From] || !known[r.To] {
			t.Errorf("relationship %+v of an unknown element", r)
		}
		if r.Type == "STATIC_LINK" {
			linked++
		}
	}
	if linked != 1+len(modules(found)) && linked != 2+len(modules(found)) || d.Packages[0].Source != "built from commit abc" {
		t.Errorf("%d links, first package %+v", linked, d.Packages[0])
	}
	again, err := sbom(identity{version: "1.2.3", commit: "abc", time: time.Unix(0, 0).UTC()}, "amd64", found, "2.36")
	if err != nil || !bytes.Equal(text, again) {
		t.Error("a second SBOM differs", err)
	}
}

// TestArches checks that a missing compiler is an error only for a processor that the caller asks for.
func TestArches(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	said := 0
	o := Options{Log: func(string, ...any) { said++ }}
	if got, err := o.arches(); err != nil || len(got) != 1 || said != 1 {
		t.Errorf("%q, %v, %d notes", got, err, said)
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		o.Arch = []string{arch}
		if got, err := o.arches(); (err == nil) != (len(got) == 1) || arch == "riscv64" && err == nil {
			t.Errorf("%s: %q, %v", arch, got, err)
		}
	}
}
