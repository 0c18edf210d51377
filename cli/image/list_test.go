package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/oci"
	"demesne/images/recipes"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

func TestImageTable(t *testing.T) {
	now := time.Now()
	infos := []imageInfo{
		{Names: []string{"docker.io/library/python:3.12", "ghcr.io/o/n:1"}, Digest: digestNamed("a"), Size: 3 << 20, Shared: 1 << 20, Unpacked: 7 << 20, Used: now.Add(-49 * time.Hour)},
		{Digest: digestNamed("b"), Size: 5, InUse: true},
		{Names: []string{"docker.io/library/mine:latest"}, Digest: digestNamed("c"), Damage: "gone"},
	}
	infos = append(infos, notPulled(infos)...)
	want := []string{
		"NAME DIGEST SIZE SHARED UNPACKED LAST USED",
		"python aaaaaaaaaaaa 3.0 MiB 1.0 MiB 7.0 MiB 2d ago",
		"ghcr.io/o/n:1 aaaaaaaaaaaa 3.0 MiB 1.0 MiB 7.0 MiB 2d ago",
		"- bbbbbbbbbbbb 5 B 0 B - now",
		"mine cccccccccccc 0 B 0 B - damaged",
		"node - - - - -", "go - - - - -", "anaconda - - - - -", "debian - - - - -", "ubuntu - - - - -", "alpine - - - - -",
	}
	for _, r := range recipes.All() {
		name := recipes.Namespace + r.Name
		if r.Word {
			name = r.Name
		}
		want = append(want, name+" - about "+text.FormatBytes(r.Size)+" - - not built")
	}
	var got []string
	for line := range strings.Lines(imageTable(infos, now)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("imageTable:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := imageNames(infos[:3]); got != "python\nghcr.io/o/n:1\nmine\n" {
		t.Errorf("imageNames: %q", got)
	}
}

func TestDamageTable(t *testing.T) {
	got := damageTable([]images.Damage{
		{Why: errors.New("not\njson\x1b")},
		{Digest: digestNamed("a"), Names: []string{"docker.io/library/python:3.12"}, Why: errors.New("it is missing")},
		{Digest: digestNamed("b"), Names: []string{"docker.io/library/python:3.12", "mine"}, Made: []string{"mine"}, Why: errors.New("it is missing")},
	})
	if want := "index.json: not json?; removed\nblob aaaaaaaaaaaa: it is missing; removed\n    fix: demesne pull python\n" +
		"blob bbbbbbbbbbbb: it is missing; removed\n    fix: demesne pull python\n    mine was made here: import or commit it again\n"; got != want {
		t.Errorf("damageTable: %q, want %q", got, want)
	}
}

// TestIntoFile checks that a file appears only when it is complete, and that an existing file of another kind
// is written to directly.
func TestIntoFile(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	write := func(f *os.File) error { _, err := f.WriteString("new"); return err }
	fails := func(f *os.File) error { f.WriteString("half"); return fs.ErrInvalid }
	if err := intoFile(target, fails); !errors.Is(err, fs.ErrInvalid) || fsutil.Exists(target) {
		t.Errorf("half a file: %v, there %v", err, fsutil.Exists(target))
	}
	os.WriteFile(target, []byte("old and longer"), 0o600)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := intoFile(link, write); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "new" {
		t.Errorf("through a link: %q", b)
	}
	if info, _ := os.Lstat(link); info.Mode().IsRegular() {
		t.Error("the link was replaced")
	}
	if err := intoFile("/dev/null", write); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

func digestNamed(c string) oci.Digest { return oci.Digest("sha256:" + strings.Repeat(c, 64)) }
