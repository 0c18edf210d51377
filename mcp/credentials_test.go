package mcp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestEscapeM4Places checks that a place is closed, with everything in it and every directory that contains it. It is
// open only if the operator named it or a directory inside it.
func TestEscapeM4Places(t *testing.T) {
	for _, c := range []struct {
		roots       []string
		real, place string
		want        bool
	}{
		{[]string{"/h"}, "/h/.ssh", "/h/.ssh", true},
		{[]string{"/h"}, "/h/.ssh/id", "/h/.ssh", true},
		{[]string{"/h"}, "/h", "/h/.ssh", true},
		{[]string{"/"}, "/", "/h/.ssh", true},
		{[]string{"/h"}, "/h/.ssh2", "/h/.ssh", false},
		{[]string{"/h"}, "/h/work", "/h/.ssh", false},
		{[]string{"/h", "/h/.ssh"}, "/h/.ssh/id", "/h/.ssh", false},
		{[]string{"/h", "/h/.ssh"}, "/h", "/h/.ssh", false},
		{[]string{"/h", "/h/.ssh/pub"}, "/h/.ssh/pub/a", "/h/.ssh", false},
		{[]string{"/h", "/h/.ssh/pub"}, "/h/.ssh/id", "/h/.ssh", true},
		{[]string{"/h", "/h/.ssh/pub"}, "/h/.ssh", "/h/.ssh", true},
		{[]string{"/h", "/h/.ssh/pub"}, "/h", "/h/.ssh", true},
	} {
		if got := (Mounts{roots: c.roots}).touches(c.real, c.place); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPlaces checks that places are found in a home with special characters, through links, and by names that end in
// *.
func TestPlaces(t *testing.T) {
	root := t.TempDir()
	home, keys := filepath.Join(root, "home[1]"), filepath.Join(root, "keys")
	if err := errors.Join(os.MkdirAll(home+"/.config/gh", 0o755), os.Mkdir(keys, 0o755), os.Symlink(keys, home+"/.ssh"),
		os.WriteFile(home+"/.claude.json.backup", nil, 0o600), os.Symlink("/nonexistent", home+"/.aws")); err != nil {
		t.Fatal(err)
	}
	got := places([]string{home})
	for _, want := range []string{home + "/.ssh", keys, home + "/.config/gh", home + "/.claude.json.backup", home + "/.aws"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	if slices.Contains(got, home+"/.netrc") {
		t.Errorf("%q", got)
	}
	for path, want := range map[string]string{"/srv/.ssh/a/.ssh": "/srv/.ssh", "/srv/.docker/config.json": "/srv/.docker/config.json", "/srv/.docker/x": "", "/srv/x.ssh": ""} {
		if got := named(path, false); (want == "") != (len(got) == 0) || want != "" && got[0] != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
