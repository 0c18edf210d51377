package sandbox

import (
	"testing"

	"demesne/rootfs/upper"
)

func TestDiffOf(t *testing.T) {
	changes := []upper.Change{
		{Path: "etc/hosts", Kind: 'M'}, {Path: "in", Kind: 'A'}, {Path: "in/x", Kind: 'A'}, {Path: "out", Kind: 'A'},
		{Path: "workspace", Kind: 'A'}, {Path: "workspace/.envrc", Kind: 'A'}, {Path: "x/.envrc", Kind: 'D'}, {Path: "etc/demesne-ca.pem", Kind: 'A'},
	}
	for _, row := range []struct {
		image bool
		want  string
	}{
		{false, "M/etc/hosts A/workspace/.envrc!direnv D/x/.envrc A/etc/demesne-ca.pem "},
		{true, "A/workspace/.envrc!direnv D/x/.envrc "},
	} {
		got := ""
		for _, c := range diffOf(changes, true, row.image).Changes {
			got += c.Kind + string(c.Path)
			if c.Executes != "" {
				got += "!" + c.Executes
			}
			got += " "
		}
		if got != row.want {
			t.Errorf("image %t: %q, want %q", row.image, got, row.want)
		}
	}
	if !diffOf(nil, false, false).Truncated {
		t.Error("a truncated Diff does not say so")
	}
}
