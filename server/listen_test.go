package server

import (
	"os"
	"testing"
)

// TestListenUnix checks that a socket with a live server is not taken over, and that a stale one is.
func TestListenUnix(t *testing.T) {
	path := t.TempDir() + "/s"
	first, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := listenUnix(path); err == nil {
		t.Error("taken over")
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

// TestListenUnixElsewhere checks that abstract sockets are never used, because every user could connect to
// them. It also checks that a file that is not a socket is not removed.
func TestListenUnixElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	if l, err := listenUnix(""); err == nil {
		t.Errorf("listens on %v", l.Addr())
	}
	l, err := listenUnix("@name")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Lstat("@name"); err != nil || st.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v %v", st, err)
	}
	if err := os.WriteFile("notes", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = listenUnix("notes")
	if b, _ := os.ReadFile("notes"); err == nil || string(b) != "mine" {
		t.Errorf("%v; the file has %q", err, b)
	}
}
