package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/agents"
)

func newDirs(t *testing.T) *dirs {
	t.Helper()
	d := &dirs{base: t.TempDir()}
	if err := d.make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

// TestDeliver checks that results replace what a sandbox put at their names, also a directory that the caller cannot
// remove in an output directory that the caller cannot write, and that no link is followed.
func TestDeliver(t *testing.T) {
	d := newDirs(t)
	victim := filepath.Join(t.TempDir(), "victim")
	os.WriteFile(victim, []byte("mine"), 0o600)
	os.Symlink(victim, d.out+"/results.json")
	os.MkdirAll(d.out+"/usage.json/full", 0o700)
	os.WriteFile(d.out+"/stderr.log", []byte("forged"), 0o600)
	os.Chmod(d.out+"/usage.json", 0)
	os.Chmod(d.out, 0o500)
	for _, name := range []string{"results.json", "usage.json", "stderr.log"} {
		os.WriteFile(d.sidecar+"/"+name, []byte("true "+name), 0o600)
	}
	if err := d.deliver(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.json", "usage.json", "stderr.log"} {
		info, err := os.Lstat(d.out + "/" + name)
		got, _ := os.ReadFile(d.out + "/" + name)
		if err != nil || !info.Mode().IsRegular() || string(got) != "true "+name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := os.Chmod(d.out+"/usage.json.sandbox", 0o700); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(victim); string(got) != "mine" {
		t.Errorf("the victim has %q", got)
	}
}

// TestDeliverAfterLoss checks that results replace what a sandbox put at their names, also after a part of the transcript was lost.
func TestDeliverAfterLoss(t *testing.T) {
	d := newDirs(t)
	os.WriteFile(d.out+"/results.json", []byte("forged"), 0o600)
	n := &node{dirs: d}
	n.asked.meter = agents.NewMeter("")
	a := &attempts{transcript: &record{lost: unix.ENOSPC}, stderr: &record{}, events: agents.NewTranscript("", nil)}
	if err := n.writeResults(a, &agents.Result{}, &agents.Results{JobID: "true"}); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if got, err := os.ReadFile(d.out + "/results.json"); !strings.Contains(string(got), "true") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFill checks that no name of a file leads out of its directory.
func TestFill(t *testing.T) {
	d := newDirs(t)
	if err := fill(d.config, map[string][]byte{"a/b.json": []byte("x")}); err != nil {
		t.Error(err)
	}
	if err := fill(d.config, map[string][]byte{"../b": nil}); err == nil {
		t.Error("wrote above the directory")
	}
}
