package hostaccess

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"demesne/internal/fsutil"
	"demesne/session/vault"
)

// TestUnreadableSecrets checks that a caller gets no secret because its file cannot be read: not later, and not from the start.
func TestUnreadableSecrets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(fsutil.StateVariable, dir)
	t.Setenv("DEMESNE_VAULT_KEY", "")
	v, err := vault.Default("")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := storedSecrets()
	if err != nil || len(stored()) > 0 {
		t.Fatalf("without secrets: %v", err)
	}
	if _, err := v.Add(vault.Secret{Namespace: "default", Name: "TOKEN", Value: "correct-horse"}); err != nil {
		t.Fatal(err)
	}
	if got := stored(); !slices.Equal(got, []string{"correct-horse"}) {
		t.Errorf("%q", got)
	}
	if err := os.Remove(filepath.Join(dir, "vault", "key")); err != nil {
		t.Fatal(err)
	}
	if got := stored(); !slices.Equal(got, []string{"correct-horse"}) {
		t.Errorf("while they cannot be read: %q", got)
	}
	if _, err := storedSecrets(); err == nil {
		t.Error("host access begins without them")
	}
}
