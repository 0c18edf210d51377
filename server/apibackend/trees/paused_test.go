package trees

import (
	"testing"
	"time"

	"demesne/runner/client"
)

// TestPaused checks which processes of a sandbox are not kept any more once it was paused: those that performed an operation
// at any moment of the pause.
func TestPaused(t *testing.T) {
	var ts Trees
	stale := func(k *kept) bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return k.stale
	}
	before, during := &kept{Tree: &client.Tree{}, sandbox: "a"}, &kept{Tree: &client.Tree{}, sandbox: "a"}
	other := &kept{Tree: &client.Tree{}, sandbox: "b"}
	ts.begin(before)
	ts.begin(other)
	err := ts.Paused("a", func() error {
		ts.begin(during)
		return nil
	})
	if err != nil || !stale(before) || !stale(during) || stale(other) || len(ts.pausing) != 0 {
		t.Errorf("%v: before %v, during %v, another sandbox's %v; pausing %v", err, before.stale, during.stale, other.stale, ts.pausing)
	}
	after := &kept{Tree: &client.Tree{}, sandbox: "a", born: time.Now()}
	ts.begin(after)
	if ts.keep(after); ts.take(&kept{sandbox: "a"}) != after {
		t.Error("a process that was started later is not kept")
	}
}
