package container

import (
	"testing"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/pid1/pid1api"
)

func TestMountsLayer(t *testing.T) {
	spec := runner.Spec{Mounts: []runner.Mount{{Source: "/a", Target: "/a"}, {Source: "/a/b", Target: "/a/b", ReadOnly: true}}}
	for _, row := range []struct {
		name  string
		facts ReceiptFacts
		want  runner.Status
	}{
		{"mounted", ReceiptFacts{Spec: spec, Tree: &rootfs.Tree{Mounted: 2}}, runner.Held},
		{"not all", ReceiptFacts{Spec: spec, Tree: &rootfs.Tree{Mounted: 1}}, runner.Missing},
		{"minimal", ReceiptFacts{Spec: spec, Guest: pid1api.Facts{LandlockFS: true}}, runner.Held},
		{"nothing", ReceiptFacts{Spec: spec}, runner.Missing},
	} {
		if l := mountsLayer(row.facts); l.Status != row.want || l.Name != "mounts" {
			t.Errorf("%s: %+v", row.name, l)
		}
	}
}
