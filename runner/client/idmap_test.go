package client

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestParseSubid(t *testing.T) {
	for line, want := range map[string]struct {
		who          string
		start, count uint32
		ok           bool
	}{
		"alice:100000:65536\n":     {"alice", 100000, 65536, true},
		"1000:231072:65536":        {"1000", 231072, 65536, true},
		"alice:100000":             {ok: false},
		":100000:65536":            {ok: false},
		"alice:-1:65536":           {ok: false},
		"alice:100000:99999999999": {ok: false},
		"":                         {ok: false},
		"# comment":                {ok: false},
	} {
		who, start, count, ok := parseSubid(line)
		if ok != want.ok || ok && (who != want.who || start != want.start || count != want.count) {
			t.Errorf("%q: got %q %d %d %v", line, who, start, count, ok)
		}
	}
}

// TestNoMapper: without newuidmap, newgidmap does not run.
func TestNoMapper(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(dir+"/newgidmap", []byte("#!/bin/sh\n>"+dir+"/ran"), 0o755); err != nil {
		t.Fatal(err)
	}
	why, fix := explainSubids(runMappers(os.Getpid(), nil, nil))
	if why != "newuidmap is not installed" || fix == "" {
		t.Errorf("%q, %q", why, fix)
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("newgidmap wrote a map alone")
	}
	// The hint must not name a fixed range: it may belong to another user, and sandboxes would then share those
	// files.
	if _, fix := explainSubids(errNoRange); fix == "" || strings.Contains(fix, "100000") {
		t.Errorf("no range: %q", fix)
	}
}

func TestSearchable(t *testing.T) {
	if err := searchable("/tmp/demesne-no-such/run"); err != nil {
		t.Errorf("below /tmp: %v", err)
	}
	dir := t.TempDir()
	if err := searchable(dir); err == nil {
		t.Errorf("%s is private and passes", dir)
	}
}

// TestMapperShort: a mapper that is killed or cannot start for a moment is no reason for a single id; one that fails is.
func TestMapperShort(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for script, single := range map[string]bool{"kill -9 $$": false, "kill -31 $$": true, "exit 1": true} {
		for _, name := range []string{"newuidmap", "newgidmap"} {
			if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command("sleep", "100")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		maps, err := new(idPlan).write(c.Process.Pid)
		if single && (err != nil || maps.Why == "") || !single && err == nil {
			t.Errorf("%s: %+v, %v", script, maps, err)
		}
		c.Process.Kill()
		c.Wait()
	}
}
