package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// TestKeptRules checks that the helper is asked again when, and only when, its answer may differ.
func TestKeptRules(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DEMESNE_TEST_MIRROR", "")
	kept := filepath.Join(home, ".demesne", keptName)
	source := filepath.Join(home, ".npmrc")
	// answers makes the helper answer with a rule and the current stamp of source.
	answers := func(rule string) {
		t.Helper()
		at, err := fsutil.StampOf(source)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(runner.EgressRules{
			Egress: runner.Egress{Mode: "open", Allow: []string{rule}}, Notes: []string{"a note"},
			Sources: &runner.RuleSources{Files: []fsutil.Stamp{at}, Env: []string{"DEMESNE_TEST_MIRROR"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(os.Getenv("DEMESNE_LIBEXEC"), "answer")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	helper(t, `cat "$DEMESNE_LIBEXEC/answer"`)
	is := func(when, mode, file, want string) {
		t.Helper()
		r, err := rulesOf(t.Context(), mode, file)
		if got := strings.Join(r.Allow, " "); err != nil || got != want || len(r.Notes) != 1 {
			t.Errorf("%s: %q, notes %q, %v; want %q", when, got, r.Notes, err, want)
		}
	}
	answers("one.test")
	is("first", "open", "", "one.test")
	answers("two.test")
	is("nothing changed", "open", "", "one.test")
	is("another mode", "package-managers", "", "two.test")
	is("a policy file", "package-managers", "f.toml", "two.test")

	answers("three.test")
	is("the same file by another path", "package-managers", "./f.toml", "two.test")
	if err := os.WriteFile(source, []byte("registry=https://four.test"), 0o600); err != nil {
		t.Fatal(err)
	}
	answers("four.test")
	is("a source was made", "package-managers", "f.toml", "four.test")
	answers("five.test")
	t.Setenv("DEMESNE_TEST_MIRROR", "x")
	is("a variable is set", "package-managers", "f.toml", "five.test")
	t.Setenv("DEMESNE_TEST_MIRROR", "")

	answers("six.test")
	is("nothing changed again", "package-managers", "f.toml", "five.test")
	if err := os.Chmod(kept, 0o644); err != nil {
		t.Fatal(err)
	}
	is("others can read the file", "package-managers", "f.toml", "six.test")
	if st, err := os.Stat(kept); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := os.WriteFile(kept, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	answers("seven.test")
	is("the file is malformed", "package-managers", "f.toml", "seven.test")
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(home, "elsewhere"), kept); err != nil {
		t.Fatal(err)
	}
	is("the file is a link", "package-managers", "f.toml", "seven.test")
	if _, err := os.Lstat(filepath.Join(home, "elsewhere")); err == nil {
		t.Error("a link was followed")
	}
	answers("eight.test")
	is("nothing changed, once more", "package-managers", "f.toml", "seven.test")
	before := os.Getenv("DEMESNE_LIBEXEC")
	helper(t, `cat `+before+`/answer # another program`)
	is("another helper", "package-managers", "f.toml", "eight.test")
	if left, _ := filepath.Glob(filepath.Join(home, ".demesne", ".*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestKeptRulesWithout checks that nothing is kept of an answer without sources, and that an unwritable home costs
// nothing but time.
func TestKeptRulesWithout(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	helper(t, `echo '{"mode":"open"}'`)
	if _, err := rulesOf(t.Context(), "open", ""); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(home); len(left) != 0 {
		t.Errorf("kept: %v", left)
	}
	t.Setenv("HOME", "/proc/self/none")
	helper(t, `echo '{"mode":"open","sources":{}}'`)
	if r, err := rulesOf(t.Context(), "open", ""); err != nil || r.Mode != "open" {
		t.Errorf("%+v, %v", r, err)
	}
}
