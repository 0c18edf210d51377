package procself

import (
	"os"
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
