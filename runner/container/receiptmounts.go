package container

import (
	"fmt"

	"demesne/runner"
)

// mountsLayer reports the mounts of the Spec. Without namespaces, Landlock's rules stand for them.
func mountsLayer(f ReceiptFacts) runner.Layer {
	readonly := 0
	for _, m := range f.Spec.Mounts {
		if m.ReadOnly {
			readonly++
		}
	}
	l := runner.Layer{
		Name: "mounts", Status: runner.Held,
		Detail: fmt.Sprintf("%d of the host: %d writable, %d read-only", len(f.Spec.Mounts), len(f.Spec.Mounts)-readonly, readonly),
	}
	switch {
	case f.Tree != nil && f.Tree.Mounted != len(f.Spec.Mounts), f.Tree == nil && !f.Guest.LandlockFS:
		l.Status, l.Why = runner.Missing, "not verified"
	case f.Tree == nil:
		l.Detail += "; by Landlock, at their own paths"
	}
	return l
}
