package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

func TestOpenLog(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	os.MkdirAll(filepath.Join(out, "sub"), 0o755)
	os.Symlink(out, filepath.Join(dir, "link"))
	os.Symlink("/dev/null", filepath.Join(dir, "planted"))
	for path, want := range map[string]string{
		"log":         "",
		"out/log":     "which the sandbox can write to",
		"out/sub/log": "which the sandbox can write to",
		"link/log":    "which the sandbox can write to",
		"planted":     "too many levels of symbolic links",
		"none/log":    "no such file",
	} {
		s := &sourceFiles{byName: ipc.Files{}}
		egress := &runner.Egress{Log: filepath.Join(dir, path)}
		err := s.openLogs(&runner.Spec{Out: out, Egress: egress})
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) && want != "" {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if (s.byName[api.FileLog] != nil) != (want == "") {
			t.Errorf("%s: opened %v", path, s.byName)
		}
		s.close()
	}
	if info, err := os.Stat(filepath.Join(dir, "log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log: %v, %v", info, err)
	}
}

// TestOpenRecords: routes with the same file share a descriptor, and none of the files is in a place that the sandbox
// can write to. The caller's routes do not change.
func TestOpenRecords(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	os.MkdirAll(out, 0o755)
	t.Chdir(dir)
	asked := []runner.Route{{Record: "a"}, {}, {Record: dir + "/a"}, {Record: "b"}}
	spec := runner.Spec{Out: out, Egress: &runner.Egress{Routes: asked}}
	s := &sourceFiles{byName: ipc.Files{}}
	if err := s.openLogs(&spec); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if len(s.byName) != 2 || s.byName[api.FileRecord(0)] == nil || s.byName[api.FileRecord(3)] == nil {
		t.Errorf("%v", s.byName)
	}
	if r := spec.Egress.Routes; r[0].Record != dir+"/a" || r[1].Record != "" || r[3].Record != dir+"/b" || asked[0].Record != "a" {
		t.Errorf("%+v, asked %+v", r, asked)
	}
	for _, spec := range []runner.Spec{{Out: out}, {Mounts: []runner.Mount{{Source: out}}}} {
		spec.Egress = &runner.Egress{Routes: []runner.Route{{Record: out + "/a"}}}
		if err := s.openLogs(&spec); err == nil || !strings.Contains(err.Error(), "which the sandbox can write to") {
			t.Error(err)
		}
	}
}

// TestOpenLocked: a log is locked while it is open, and created again if it is being removed.
func TestOpenLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := openLocked(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openLocked(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	remover, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer remover.Close()
	if err := unix.Flock(int(remover.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("locked by another: %v", err)
	}
	f.Close()
	if err := unix.Flock(int(remover.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() {
		os.Remove(path)
		remover.Close()
	})
	f, err = openLocked(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mine, err1 := f.Stat()
	there, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
		t.Errorf("a missing log: %v, %v", err1, err2)
	}
}

func TestPortOpen(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	for _, c := range []struct {
		port runner.Port
		err  string
	}{
		{runner.Port{Listen: "127.0.0.1:0", To: 80}, "not ADDRESS:PORT"},
		{runner.Port{Listen: "8080", To: 80}, "not ADDRESS:PORT"},
		{runner.Port{Listen: "localhost:8080", To: 80}, "not ADDRESS:PORT"},
		{runner.Port{Listen: "unix:s", To: 80}, "absolute"},
		{runner.Port{Listen: "unix:" + sock, To: 0}, "port 0 in the sandbox"},
		{runner.Port{Listen: "unix:" + dir, To: 80}, "address already in use"},
		{runner.Port{Listen: "unix:" + sock, To: 80}, ""},
		{runner.Port{Listen: "unix:" + sock, To: 80}, "address already in use"}, // a live listener
	} {
		f, err := open(c.port)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, want %q", c.port, err, c.err)
		}
		if f != nil {
			defer f.Close()
		}
	}
}

// TestPortOpenStale: a socket that a killed runner left is replaced.
func TestPortOpenStale(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "s")
	for range 2 {
		f, err := open(runner.Port{Listen: "unix:" + sock, To: 80})
		if err != nil {
			t.Fatal(err)
		}
		f.Close() // the socket's file remains
	}
	var st unix.Stat_t
	if err := unix.Lstat(sock, &st); err != nil {
		t.Error(err)
	}
}

func TestBlockedString(t *testing.T) {
	for want, b := range map[string]runner.Blocked{
		"evil.test:443 (no rule)": {Host: "evil.test", Port: 443, Reason: "no rule"},
		"evil.test (no rule)":     {Host: "evil.test", Reason: "no rule"},
	} {
		if b.String() != want {
			t.Errorf("got %q, want %q", b, want)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v", runner.Secret{Name: "T", Value: "hidden"}, runner.Secret{Value: "hidden"}, runner.Secret{Value: "hidden"}); strings.Contains(s, "hidden") {
		t.Error(s)
	}
}
