package session

import (
	"context"
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
	ofCLI = "20261122-123456-0123abcd"
	used  = "20261121-123456-0123abcd"
	other = "20261121-123457-0123abcd"
	sb    = "0123456789ab"
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
	dir := root(t, ofCLI, used, other, sb, "mine", ".egress", ofCLI+"x")
	victim := root(t, "keep")
	if err := os.Symlink(victim, dir+"/20261122-123456-00000000"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, dir+"/"+sb+"/link"); err != nil {
		t.Fatal(err)
	}
	lock := &outDir{path: filepath.Join(dir, other)}
	if err := lock.hold(); err != nil {
		t.Fatal(err)
	}
	o := pruneOptions{before: time.Now().Add(time.Hour)}
	all := left(dir)
	if _, err := pruneOutputs(dir, o, func() ([]runner.Info, error) { return nil, errors.New("no runner") }); err == nil || left(dir) != all {
		t.Errorf("without a runner: %v, %s", err, left(dir))
	}
	if done, err := pruneOutputs(dir, o, using(used)); err != nil || done.Dirs != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	if got, want := left(dir), fmt.Sprintf(".egress %s %s %s %s mine", used, other, "20261122-123456-00000000", ofCLI+"x"); got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	if left(victim) != "keep" {
		t.Error("a link was followed")
	}
	lock.close()
	if done, err := pruneOutputs(dir, pruneOptions{before: time.Now().Add(-time.Hour)}, using()); err != nil || done.Dirs != 0 {
		t.Errorf("what is new: %+v, %v", done, err)
	}
}

// TestPruneTooMany checks that the newest directories are kept, in addition to directories in use.
func TestPruneTooMany(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("20261122-123456-%08x", i))
	}
	dir := root(t, names...)
	if _, err := pruneOutputs(dir, pruneOptions{most: 10}, func() ([]runner.Info, error) { t.Error("asked"); return nil, nil }); err != nil {
		t.Error(err)
	}
	if done, err := pruneOutputs(dir, pruneOptions{most: 4}, using(names[0])); err != nil || done.Dirs != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := left(dir); got != strings.Join(append([]string{names[0]}, names[6:]...), " ") {
		t.Errorf("left: %s", got)
	}
}

func TestRemoveEmpty(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{ofCLI, used + "/f", "mine"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{ofCLI, used, "mine", used + "/f"} {
		outputs{dir: dir}.removeEmpty(filepath.Join(dir, path))
	}
	if got := left(dir); got != used+" mine" {
		t.Errorf("left: %s", got)
	}
}

// lister is an engine that only lists.
type lister struct {
	Engine
	infos []runner.Info
}

func (l lister) List(context.Context) ([]runner.Info, error) { return l.infos, nil }

// TestPruneUnreadable checks that no output directory is removed while the record of a sandbox cannot be read.
func TestPruneUnreadable(t *testing.T) {
	dir := root(t, ofCLI, other)
	e := lister{infos: []runner.Info{{ID: "a", Out: "/x/" + used}, {ID: "b", State: runner.Unreadable}}}
	done, err := pruneOutputs(dir, pruneOptions{before: time.Now().Add(time.Hour)}, func() ([]runner.Info, error) { return ListAll(t.Context(), e) })
	if err == nil || !strings.Contains(err.Error(), `nothing removed: the record of sandbox "b"`) || done != (pruned{}) || left(dir) != other+" "+ofCLI {
		t.Errorf("%+v, %v; left %s", done, err, left(dir))
	}
}
