package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/mcpinstall"
	"demesne/mcp"
)

func TestAllowedPaths(t *testing.T) {
	for _, c := range []struct{ value, wd, want string }{
		{"", "/home/u/p", "/home/u/p"},
		{"/a:/b", "/home/u/p", "/a /b"},
		{":/a:", "/home/u/p", "/a"},
		{":", "/home/u/p", "/home/u/p"},
		{"", "/", ""}, // started in an arbitrary directory
		{"", "/home", ""},
		{"", "/home/u", ""},
		{"", "/home/u/", ""},
		{"", "/home/us", "/home/us"},
		{"/", "/", "/"},
		{"/home/u", "/", "/home/u"},
	} {
		got, err := allowedPaths(c.value, "/home/u", func() (string, error) { return c.wd, nil })
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q in %q: %v %v, want %q", c.value, c.wd, got, err, c.want)
		}
	}
	if _, err := allowedPaths("", "/home/u", func() (string, error) { return "", os.ErrNotExist }); err == nil {
		t.Error("a working directory that is gone")
	}
}

// TestMissingPath checks that an allowed directory that does not exist is a warning.
func TestMissingPath(t *testing.T) {
	dir := t.TempDir()
	var warned strings.Builder
	if got := present([]string{dir, dir + "/none"}, &warned); len(got) != 1 || got[0] != dir {
		t.Errorf("%q", got)
	}
	if want := fmt.Sprintf("demesne-mcp: warning: DEMESNE_ALLOWED_PATHS: %q does not exist, and is ignored\n", dir+"/none"); warned.String() != want {
		t.Errorf("%q, want %q", warned.String(), want)
	}
}

// TestEgress checks that models cannot ask for a mode that allows every destination.
func TestEgress(t *testing.T) {
	if got := strings.Join(network(), " "); got != "none package-managers" {
		t.Errorf("%q", got)
	}
}

func TestParse(t *testing.T) {
	given := func(args ...string) (*mcpinstall.ServerOptions, error) {
		o := &mcpinstall.ServerOptions{}
		return o, parse(mcpinstall.ServerCommand(o), o, args)
	}
	o, err := given("--http", "127.0.0.1:1", "--host", "a", "--host=b", "--token-file", "f")
	if err != nil || o.HTTP != "127.0.0.1:1" || strings.Join(o.Hosts, " ") != "a b" || o.TokenFile != "f" {
		t.Errorf("%+v %v", o, err)
	}
	for _, args := range [][]string{{"x"}, {"--bad"}, {"--host", "a"}, {"--http"}} {
		if _, err := given(args...); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	if _, err := given("-h"); !errors.Is(err, cli.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if _, err := given("--version"); !errors.Is(err, cli.ErrVersion) {
		t.Errorf("--version: %v", err)
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"secret\n": "secret", " s \nmore": "s", "": "", "\nlate": ""} {
		path := filepath.Join(dir, "t")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := token(path); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	t.Setenv(varToken, "of the environment")
	if got, err := token(""); err != nil || got != "of the environment" {
		t.Errorf("%q %v", got, err)
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct {
		addr    string
		guarded bool
		ok      bool
	}{
		{"127.0.0.1:0", false, true}, {"[::1]:0", false, true}, {"0.0.0.0:0", false, false}, {"0.0.0.0:0", true, true},
		{"nonsense", true, false}, {"unix:" + t.TempDir() + "/s", false, true}, {"unix:/nonexistent/s", true, false},
	} {
		l, err := listen(c.addr, c.guarded)
		if (err == nil) != c.ok {
			t.Errorf("%s, guarded %v: %v", c.addr, c.guarded, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

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

func TestToolSets(t *testing.T) {
	for _, c := range []struct{ said, env, want string }{
		{"", "", ""}, {"files", "", "files"}, {"", "files", "files"}, {"files,files", "zzz", "files files"},
	} {
		if got, err := toolSets(c.said, c.env); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v %v", c, got, err)
		}
	}
	if _, err := toolSets("files,zzz", ""); err == nil || err.Error() != `tools: "zzz" is not a tool set (known: files, sandboxes)` {
		t.Errorf("%v", err)
	}
	if known := mcpinstall.ToolSets(); !slices.Equal(known, mcp.ToolSets()) {
		t.Errorf("mcp install knows %q, the server %q", known, mcp.ToolSets())
	}
}
