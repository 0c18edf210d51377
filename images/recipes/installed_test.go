package recipes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFollow checks the argument for the version of an installation: from npm, from a native installer, and of none.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, name string) {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("npm/lib/node_modules/@o/agent/package.json", `{"version": "1.2.3-beta.4"}`)
	link(put("npm/lib/node_modules/@o/agent/bin/agent.js", "x"), "npm/bin/agent")
	link(put("native/versions/2.1.197", "x"), "native/bin/agent")
	put("other/bin/agent", "x")
	put("other/package.json", `{"version": "9.9.9"}`)
	put("evil/node_modules/agent/package.json", `{"version": "1.0.0; id"}`)
	link(put("evil/node_modules/agent/agent", "x"), "evil/bin/agent")
	r := Recipe{Name: "agent", Program: "agent"}
	for name, want := range map[string][]string{
		"npm": {"A=b", "VERSION=1.2.3-beta.4"}, "native": {"A=b", "VERSION=2.1.197"}, "other": {"A=b"}, "evil": {"A=b"}, "none": {"A=b"},
	} {
		t.Setenv("PATH", "bin:/nonexistent:"+filepath.Join(dir, name, "bin"))
		if got := r.Follow([]string{"A=b"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got := r.Follow([]string{"VERSION=7"}); !slices.Equal(got, []string{"VERSION=7"}) {
			t.Errorf("%s, with a version: %q", name, got)
		}
	}
	t.Setenv("PATH", filepath.Join(dir, "npm/bin"))
	if got := (Recipe{Name: "agent"}).Follow(nil); got != nil {
		t.Errorf("a recipe without a program: %q", got)
	}
}
