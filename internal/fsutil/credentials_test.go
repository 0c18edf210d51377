package fsutil

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCredentialsIn checks that settings of a project are not credentials in a checkout, unless they have a token.
func TestCredentialsIn(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h*[1]")
	for name, text := range map[string]string{".npmrc": "save-exact=true", ".claude/settings.json": "{}", ".claude.json": "{}", ".yarnrc.yml": "npmAuthToken: x", ".codex/auth.json": "{}", ".netrc": "", "src/.netrc": ""} {
		os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755)
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for checkout, want := range map[bool][]string{
		false: {".claude", ".claude.json", ".codex", ".netrc", ".npmrc", ".yarnrc.yml"},
		true:  {".codex/auth.json", ".netrc", ".yarnrc.yml"},
	} {
		got := CredentialsIn(home, checkout)
		for i := range got {
			got[i], _ = filepath.Rel(home, got[i])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("checkout %v: %q, want %q", checkout, got, want)
		}
	}
}
