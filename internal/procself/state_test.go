package procself

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"
)

// TestOwnState checks which home directories demesne uses, and that the directory for the others is private.
func TestOwnState(t *testing.T) {
	const variable = "DEMESNE_TEST_STATE"
	top := t.TempDir()
	for _, row := range []struct {
		home, state string
		want        string // of the variable afterwards
		made        bool
	}{
		{top, "", "", false},
		{"/", "/set", "/set", false},
		{"/", "", "NAME", true},
		{"/", "", "NAME", false},
		{"", "", "NAME", false},
		{top + "/missing", "", "NAME", false},
	} {
		t.Setenv("HOME", row.home)
		t.Setenv("XDG_RUNTIME_DIR", "")
		t.Setenv("TMPDIR", top)
		t.Setenv(variable, row.state)
		made, err := OwnState(variable)
		got := os.Getenv(variable)
		if match, _ := filepath.Match(top+"/demesne-state-*", got); match {
			got = "NAME"
		}
		if err != nil || got != row.want || (made != "") != row.made {
			t.Errorf("HOME %q: %q, made %q, %v", row.home, got, made, err)
		}
	}
}

// TestOwnStateTaken checks that a directory which other users can reach is not used.
func TestOwnStateTaken(t *testing.T) {
	top := t.TempDir()
	first, _, err := privateBelow(top)
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(first, 0o777)
	if second, made, err := privateBelow(top); err != nil || !made || second == first {
		t.Errorf("%q, %v, %v", second, made, err)
	}
}

// TestCheckout checks which home directories are checkouts: not this user's own, and none that demesne has files in.
func TestCheckout(t *testing.T) {
	home := t.TempDir()
	want := func(want bool, what string) {
		t.Helper()
		if got := Checkout(home); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	want(false, "no .git")
	os.WriteFile(home+"/.git", []byte("gitdir: /elsewhere\n"), 0o644)
	want(true, "a worktree")
	os.Remove(home + "/.git")
	os.MkdirAll(home+"/.git", 0o755)
	want(true, "a repository")
	os.Mkdir(home+"/.demesne", 0o700)
	want(true, "an empty mount point")
	os.Mkdir(home+"/.demesne/run", 0o700)
	want(false, "demesne's files")
	if u, err := user.Current(); err == nil {
		if _, err := os.Lstat(u.HomeDir + "/.git"); Checkout(u.HomeDir) {
			t.Errorf("this user's home, with .git: %v", err)
		}
	}
	if Checkout("relative") || Checkout("") {
		t.Error("a relative path")
	}
}
