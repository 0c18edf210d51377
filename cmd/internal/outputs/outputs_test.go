package outputs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

const (
	cli   = "20261122-123456-0123abcd"
	uuid  = "0f0e0d0c-0b0a-4908-8706-050403020100"
	other = "0f0e0d0c-0b0a-4908-8706-050403020101"
	box   = "0123456789ab"
)

// root creates an output root with these directories, each with a file.
func root(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, name, "sub"), 0o755), os.WriteFile(filepath.Join(dir, name, "sub/f"), []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func left(dir string) string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func using(dirs ...string) func() ([]runner.Info, error) {
	return func() (infos []runner.Info, err error) {
		for _, d := range dirs {
			infos = append(infos, runner.Info{ID: "x", Out: "/somewhere/" + d})
		}
		return infos, nil
	}
}

// TestPruneOld checks that an old output directory is removed unless a sandbox or a process uses it. Nothing
// else is touched.
func TestPruneOld(t *testing.T) {
	dir := root(t, cli, uuid, other, box, "mine", ".egress", cli+"x")
	victim := root(t, "keep")
	if err := os.Symlink(victim, dir+"/20261122-123456-00000000"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, dir+"/"+box+"/link"); err != nil {
		t.Fatal(err)
	}
	lock, err := Hold(filepath.Join(dir, other))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Root: dir, Before: time.Now().Add(time.Hour), InUse: using(uuid)}
	all := left(dir)
	failing := o
	failing.InUse = func() ([]runner.Info, error) { return nil, errors.New("no runner") }
	if _, err := Prune(failing); err == nil || left(dir) != all {
		t.Errorf("without a runner: %v, %s", err, left(dir))
	}
	if done, err := Prune(o); err != nil || done.Dirs != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if got, want := left(dir), fmt.Sprintf(".egress %s %s %s %s mine", uuid, other, "20261122-123456-00000000", cli+"x"); got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	if left(victim) != "keep" {
		t.Error("a link was followed")
	}
	lock.Close()
	if done, err := Prune(Options{Root: dir, Before: time.Now().Add(-time.Hour), InUse: using()}); err != nil || done.Dirs != 0 {
		t.Errorf("what is new: %+v, %v", done, err)
	}
}

// TestPruneTooMany checks that the newest directories are kept, besides those in use.
func TestPruneTooMany(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("20261122-123456-%08x", i))
	}
	dir := root(t, names...)
	if _, err := Prune(Options{Root: dir, Most: 10, InUse: func() ([]runner.Info, error) { t.Error("asked"); return nil, nil }}); err != nil {
		t.Error(err)
	}
	if done, err := Prune(Options{Root: dir, Most: 4, InUse: using(names[0])}); err != nil || done.Dirs != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := left(dir); got != strings.Join(append([]string{names[0]}, names[6:]...), " ") {
		t.Errorf("left: %s", got)
	}
}

func TestRemoveEmpty(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{cli, uuid + "/f", "mine"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{cli, uuid, "mine", uuid + "/f"} {
		RemoveEmpty(dir, filepath.Join(dir, path))
	}
	if got := left(dir); got != uuid+" mine" {
		t.Errorf("left: %s", got)
	}
}
