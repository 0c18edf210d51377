package tree

import (
	"fmt"
	"testing"

	"demesne/agents"
	"demesne/runner"
)

// mostMounts is the runner's bound for one sandbox.
const mostMounts = 64

// TestMountsFit checks that a child with many finished siblings does not have more mounts than a sandbox can have.
func TestMountsFit(t *testing.T) {
	tr := &tree{work: &workspace{dir: "/w", mounts: make([]runner.Mount, 5)}}
	parent := &node{tree: tr, dirs: &dirs{workspace: "/w"}}
	for i := range 70 {
		parent.children = append(parent.children, &child{name: fmt.Sprint(i), out: fmt.Sprint("/out/", i), ended: true})
	}
	n := &node{tree: tr, parent: parent, dirs: &dirs{workspace: "/w", home: "/h", config: "/c"}}
	spec := n.createOptions(&agents.Launch{HomeDir: "/home/agent", Mounts: make([]runner.Mount, 2)}).Spec
	if len(spec.Mounts) != mostMounts {
		t.Errorf("%d mounts", len(spec.Mounts))
	}
	if last := spec.Mounts[mostMounts-1]; last.Source != "/out/69" || !last.ReadOnly {
		t.Errorf("the last is %v", last)
	}
	own := parent.protected()
	if got := len(own) + len(parent.previous(len(own))); got != mostMounts {
		t.Errorf("%d mounts of a command", got)
	}
}
