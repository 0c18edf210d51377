package procself

import (
	"os"
	"slices"
	"testing"
)

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name, home, root string
		roots            []string // directories that root owns
		want             string
	}{
		{"its own", "/root", "/root", []string{"/root"}, "/root"},
		{"sudo -E", "/home/u", "/root", []string{"/root"}, "/root"},
		{"another one of its own", "/srv/build", "/root", []string{"/root", "/srv/build"}, "/srv/build"},
		{"a container's, without its own", "/github/home", "/root", nil, "/github/home"},
		{"a container's, without /etc/passwd", "/github/home", "", nil, "/github/home"},
		{"none", "", "/root", []string{"/root"}, ""},
	} {
		owned := func(dir string) bool { return slices.Contains(row.roots, dir) }
		if got := decide(row.home, owned, func() string { return row.root }); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestOwned(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/": true, dir + "/none": true, file: false, dir: os.Geteuid() == 0} {
		if got := owned(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
