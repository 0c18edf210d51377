package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/agents"
	"demesne/agents/workspace"
	"demesne/runner"
)

// maxMounts is the runner's bound for one sandbox.
const maxMounts = 64

// TestMountsFit checks that a child with many finished siblings does not have more mounts than a sandbox can have.
func TestMountsFit(t *testing.T) {
	tr := &Tree{work: &workspace.Workspace{Dir: "/w", Mounts: make([]runner.Mount, 5)}}
	parent := &node{tree: tr, dirs: &dirs{workspace: "/w"}}
	for i := range 70 {
		parent.children = append(parent.children, &child{name: fmt.Sprint(i), out: fmt.Sprint("/out/", i), ended: true})
	}
	n := &node{tree: tr, parent: parent, dirs: &dirs{workspace: "/w", home: "/h", config: "/c"}}
	spec := n.createOptions(&agents.Launch{HomeDir: "/home/agent", Mounts: make([]runner.Mount, 2)}).Spec
	if len(spec.Mounts) != maxMounts {
		t.Errorf("%d mounts", len(spec.Mounts))
	}
	if last := spec.Mounts[maxMounts-1]; last.Source != "/out/69" || !last.ReadOnly {
		t.Errorf("the last is %v", last)
	}
	own := parent.protected()
	if got := len(own) + len(parent.previous(len(own))); got != maxMounts {
		t.Errorf("%d mounts of a command", got)
	}
}

// TestRecordLost checks that a full disk hides nothing of an agent's answer: the stream goes on, and the loss is known.
func TestRecordLost(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, answer := &record{f: f}, &strings.Builder{}
	if _, err := io.WriteString(io.MultiWriter(r, answer), "the answer"); err != nil || answer.String() != "the answer" {
		t.Errorf("%q, %v", answer, err)
	}
	if !errors.Is(r.lost, unix.ENOSPC) {
		t.Error(r.lost)
	}
}
