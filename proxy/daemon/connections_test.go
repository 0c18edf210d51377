package daemon

import "testing"

// TestConnections: with any descriptor limit, three sandboxes at their maximum leave a fourth its connections.
func TestConnections(t *testing.T) {
	for limit, want := range map[uint64]int{0: 1, 256: 10, 1024: 42, 4096: 170, 20000: 512, 1 << 20: 512, ^uint64(0): 512} {
		n := connections(limit)
		if n != want || limit >= 100 && uint64(4*n*perTunnel) > limit {
			t.Errorf("%d descriptors: %d, want %d", limit, n, want)
		}
	}
	if descriptors() == 0 {
		t.Error("no limit was read")
	}
}
