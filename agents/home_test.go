package agents

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestSeed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write(t, dir+"/.claude.json", `{"history":[1],"theme":"light","keys":["old",7],"projects":{"/a":{"cost":12345678901234567890},"/w":{"x":1}}}`)
	write(t, dir+"/.c/config.toml", "old")
	write(t, dir+"/broken.json", "{")
	write(t, dir+"/kept", "as it was")
	write(t, outside+"/theirs.json", `{"secret":1}`)
	for name, target := range map[string]string{"link.json": outside + "/theirs.json", ".c/x.demesne": outside + "/made"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/fifo.json", 0o600); err != nil {
		t.Fatal(err)
	}
	l := Launch{Keep: []string{"kept", "new"}, Home: map[string][]byte{
		"kept": []byte("replaced"), "new": []byte("new"),
		".claude.json": []byte(`{"theme":"dark","keys":["new",7],"projects":{"/w":{"trust":true}}}`), ".c/config.toml": []byte("new"), "broken.json": []byte(`{}`),
		"link.json": []byte(`{"a":1}`), "fifo.json": []byte(`{}`), ".c/x": []byte("x"), "a/deep/file": []byte("y"),
	}}
	if err := l.Seed(root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		".claude.json":   `{"history":[1],"keys":["old",7,"new"],"projects":{"/a":{"cost":12345678901234567890},"/w":{"trust":true,"x":1}},"theme":"dark"}` + "\n",
		".c/config.toml": "new", "broken.json": `{}`, "link.json": `{"a":1}`, "fifo.json": `{}`, ".c/x": "x", "a/deep/file": "y", "kept": "as it was", "new": "new",
	} {
		if data, err := os.ReadFile(dir + "/" + name); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v; want %q", name, data, err, want)
		}
		if st, err := os.Lstat(dir + "/" + name); err != nil || !st.Mode().IsRegular() || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if data, _ := os.ReadFile(outside + "/theirs.json"); !strings.Contains(string(data), "secret") {
		t.Error("a file outside was replaced")
	}
	if _, err := os.Lstat(outside + "/made"); err == nil {
		t.Error("a file outside was made")
	}
}

// TestSeedEscape checks that a planted link to a directory outside is an error.
func TestSeedEscape(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Symlink(outside, dir+"/.codex"); err != nil {
		t.Fatal(err)
	}
	l := Launch{Home: map[string][]byte{".codex/config.toml": []byte("x")}}
	if err := l.Seed(root); err == nil {
		t.Error("no error")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("made %v", entries)
	}
}

// TestSeedKeeps checks that a file with the right content is not replaced, and that lists do not grow without bound.
func TestSeedKeeps(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	inode := func() uint64 {
		var st syscall.Stat_t
		if err := syscall.Stat(dir+"/a.json", &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	seed := func(key string) {
		l := Launch{Home: map[string][]byte{"a.json": []byte(`{"keys":["` + key + `"]}`)}}
		if err := l.Seed(root); err != nil {
			t.Fatal(err)
		}
	}
	seed("same")
	seed("same")
	before := inode()
	if seed("same"); inode() != before {
		t.Error("the file was replaced")
	}
	for i := range 3 * seedList {
		seed(strconv.Itoa(i))
	}
	text, _ := os.ReadFile(dir + "/a.json")
	if n := strings.Count(string(text), ",") + 1; n != seedList || !strings.HasSuffix(string(text), "\"191\"]}\n") {
		t.Errorf("%d elements: %s", n, text)
	}
}
