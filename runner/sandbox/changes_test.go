package sandbox

import (
	"testing"

	"demesne/rootfs/upper"
	"demesne/runner"
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
