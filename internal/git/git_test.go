package git

import (
	"os"
	"slices"
	"testing"

	"demesne/internal/need"
)

// TestIdentity checks that a repository's configuration precedes the user's, and that its values are only text.
func TestIdentity(t *testing.T) {
	need.Program(t, "git")
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	if env := Identity("", ""); env != nil {
		t.Errorf("without a name and an address: %q", env)
	}
	if _, err := Run(nil, "init", "-q", dir); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		home + "/.gitconfig": "[user]\nname = user\nemail = u@example.com\n",
		dir + "/.git/config": "[user]\nname = \"a \x1b[31mb\"\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"GIT_AUTHOR_NAME=a ?[31mb", "GIT_COMMITTER_NAME=a ?[31mb", "GIT_AUTHOR_EMAIL=u@example.com", "GIT_COMMITTER_EMAIL=u@example.com"}
	if env := Identity(Author(dir)); !slices.Equal(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
}
