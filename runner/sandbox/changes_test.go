package sandbox

import (
	"fmt"
	"os"
	"testing"

	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/store"
)

func TestDiffOf(t *testing.T) {
	changes := []upper.Change{
		{Path: "etc/hosts", Kind: 'M'}, {Path: "in", Kind: 'A'}, {Path: "in/x", Kind: 'A'}, {Path: "out", Kind: 'A'},
		{Path: "workspace", Kind: 'A'}, {Path: "workspace/.envrc", Kind: 'A'}, {Path: "x/.envrc", Kind: 'D'}, {Path: "etc/demesne-ca.pem", Kind: 'A'},
	}
	for _, row := range []struct {
		spec runner.Spec
		want string
	}{
		{runner.Spec{}, "M/etc/hosts A/workspace/.envrc!direnv D/x/.envrc A/etc/demesne-ca.pem "},
		{runner.Spec{Rootfs: &runner.Rootfs{}}, "A/workspace/.envrc!direnv D/x/.envrc "},
		{runner.Spec{Mounts: []runner.Mount{{Source: "/w", Target: "/workspace/.envrc"}}}, "M/etc/hosts D/x/.envrc A/etc/demesne-ca.pem "},
	} {
		got := ""
		for _, c := range diffOf(changes, true, row.spec).Changes {
			got += c.Kind + string(c.Path)
			if c.Executes != "" {
				got += "!" + c.Executes
			}
			got += " "
		}
		if got != row.want {
			t.Errorf("%+v: %q, want %q", row.spec, got, row.want)
		}
	}
	if !diffOf(nil, false, runner.Spec{}).Truncated {
		t.Error("a truncated Diff does not say so")
	}
}

// TestUppersOf: only an upper that does not exist is left out.
func TestUppersOf(t *testing.T) {
	d, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := d.New("s-1")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	tree, err := dir.OpenTree()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	uppers, letGo, err := uppersOf(dir, nil)
	if err != nil || len(uppers) > 0 {
		t.Fatalf("never ran: %d, %v", len(uppers), err)
	}
	letGo()
	if err := os.Symlink("up", fmt.Sprintf("/proc/self/fd/%d/up", tree.Fd())); err != nil {
		t.Fatal(err)
	}
	if uppers, letGo, err = uppersOf(dir, nil); err == nil {
		letGo()
		t.Errorf("not readable: %d", len(uppers))
	}
}
