package toolbackend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/mcp"
	"demesne/mcp/install"
	"demesne/server/runs"
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
		t.Error("a removed working directory")
	}
}

// TestMissingPath checks that an allowed directory that does not exist is a warning.
func TestMissingPath(t *testing.T) {
	dir := t.TempDir()
	var warned strings.Builder
	if got := present([]string{dir, dir + "/none"}, &warned); len(got) != 1 || got[0] != dir {
		t.Errorf("%q", got)
	}
	if want := fmt.Sprintf("warning: DEMESNE_ALLOWED_PATHS: %q does not exist, and is ignored\n", dir+"/none"); warned.String() != want {
		t.Errorf("%q, want %q", warned.String(), want)
	}
}

func TestToolSets(t *testing.T) {
	offered := &runs.Store{}
	for _, c := range []struct {
		runs            *runs.Store
		said, env, want string
	}{
		{nil, "", "", ""}, {nil, "files", "", "files"}, {nil, "", "files", "files"}, {nil, "files,files", "zzz", "files files"},
		{offered, "", "", "runs"}, {offered, "", "files", "files"}, {offered, "runs,files", "", "files runs"}, {offered, "", "runs", "runs"},
	} {
		o := Options{Runs: c.runs}
		o.Session.Getenv = func(string) string { return c.env }
		if got, err := o.toolSets(c.said); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v %v", c, got, err)
		}
	}
	for _, list := range []string{"files,zzz", "files,runs"} {
		o := Options{}
		o.Session.Getenv = os.Getenv
		if _, err := o.toolSets(list); err == nil || !strings.Contains(err.Error(), `is not a tool set (known: files, sandboxes, code, web, browser, computer, host)`) {
			t.Errorf("%s: %v", list, err)
		}
	}
	if known := install.ToolSets(); !slices.Equal(known, mcp.ToolSets()) {
		t.Errorf("mcp install knows %q, the server %q", known, mcp.ToolSets())
	}
}
