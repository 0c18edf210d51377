package cow

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/internal/flock"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// keptApart makes changes of sandbox box-1 to a new directory with a file f: it wrote f and g.
func keptApart(t *testing.T) (c *Set, dir string) {
	t.Helper()
	t.Setenv("DEMESNE_STATE", t.TempDir())
	t.Setenv("DEMESNE_SANDBOX_ROOT", t.TempDir())
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/f", "old\n")
	m := &runner.Mount{Source: dir, Target: dir}
	if c, err = New([]*runner.Mount{m}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Made("box-1", "mine"), os.Mkdir(m.Upper+"/up", 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, m.Upper+"/up/f", "new\n")
	write(t, m.Upper+"/up/g", "added\n")
	return c, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// TestFindChanges checks the words that find changes, and the errors of those that do not.
func TestFindChanges(t *testing.T) {
	c, _ := keptApart(t)
	for _, word := range []string{c.ID, "box-1", "mine"} {
		if found, err := Find(word); err != nil || found.ID != c.ID || found.Sandbox != "box-1" {
			t.Errorf("%q: %+v, %v", word, found, err)
		}
	}
	for _, word := range []string{"", "box", "00000000"} {
		if _, err := Find(word); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", word, err)
		}
	}
	if only, err := Only(); err != nil || only.ID != c.ID {
		t.Errorf("the only ones: %+v, %v", only, err)
	}
	if _, err := New([]*runner.Mount{{Source: t.TempDir()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Only(); !errors.Is(err, ErrChoose) {
		t.Errorf("one of two: %v", err)
	}
}

// TestApplyChanges checks that the chosen edits are made in the directory, and that the others remain.
func TestApplyChanges(t *testing.T) {
	c, dir := keptApart(t)
	if _, err := c.Apply([]string{dir + "/other"}, Directly(nil, false)); err == nil || !strings.Contains(err.Error(), "nothing changed there") {
		t.Errorf("a path without changes: %v", err)
	}
	done, err := c.Apply([]string{dir + "/g"}, Directly([]string{dir + "/g"}, false))
	if err != nil || len(done.Done) != 1 || content(dir+"/g") != "added\n" || content(dir+"/f") != "old\n" {
		t.Fatalf("one path: %+v, %v", done, err)
	}
	shown := ""
	all, err := c.Patches(nil, func(e Edit, p *Patch) bool {
		for _, h := range p.Hunks {
			shown += e.Path + " " + strings.Join(h.Lines, "")
		}
		return true
	})
	if want := dir + "/f -old\n+new\n"; err != nil || !all || shown != want {
		t.Errorf("%q, all %t, %v; want %q", shown, all, err, want)
	}
	if done, err = c.Apply(nil, func(*upper.Over, Edit) error { return ErrKept }); err != nil || len(done.Done)+len(done.Refused)+len(done.Left) > 0 {
		t.Errorf("kept: %+v, %v", done, err)
	}
	if _, err = c.Apply(nil, Directly(nil, false)); err != nil || content(dir+"/f") != "new\n" {
		t.Errorf("the rest: %q, %v", content(dir+"/f"), err)
	}
	if left, all, err := c.Edits(); err != nil || !all || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// TestDiscardChanges checks what removes a record, and what keeps it.
func TestDiscardChanges(t *testing.T) {
	c, dir := keptApart(t)
	if c.Undo(); len(must(All())) != 1 {
		t.Error("Undo removed the changes of a sandbox")
	}
	if c.DropEmpty(); len(must(All())) != 1 {
		t.Error("DropEmpty removed changes")
	}
	root := os.Getenv("DEMESNE_SANDBOX_ROOT") + "/box-1"
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.Discard(); err != nil || !c.Persistent() || len(must(All())) != 1 {
		t.Errorf("of a sandbox that can be started again: %v", err)
	}
	if edits, _, err := c.Edits(); err != nil || len(edits) != 0 || content(dir+"/f") != "old\n" {
		t.Errorf("edits %+v, %v", edits, err)
	}
	os.Remove(root)
	if c.DropEmpty(); len(must(All())) != 0 {
		t.Error("an empty record remains")
	}
}

func must(all []*Set, err error) []*Set {
	if err != nil {
		panic(err)
	}
	return all
}

// TestChangesInUse checks that changes are neither read nor dropped while a sandbox has them, nor in another directory.
func TestChangesInUse(t *testing.T) {
	c, dir := keptApart(t)
	f, err := os.Open(c.upper(0))
	if err == nil {
		err = flock.Try(f, flock.Shared)
	}
	if err != nil {
		t.Fatal(err)
	}
	var used *UsedError
	if _, _, err := c.Edits(); !errors.As(err, &used) || used.Sandbox != "box-1" {
		t.Errorf("edits: %v", err)
	}
	if err := c.Discard(); !errors.As(err, &used) {
		t.Errorf("discard: %v", err)
	}
	f.Close()
	if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Edits(); err == nil || !strings.Contains(err.Error(), "it is another one by now") {
		t.Errorf("another directory: %v", err)
	}
}
