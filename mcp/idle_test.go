package mcp

import (
	"runtime"
	"testing"
)

// TestRest checks that the memory of a large answer is returned to the kernel when the server is
// idle.
func TestRest(t *testing.T) {
	garbage := make([]byte, 64<<20)
	for i := range garbage { // touch the pages, so that the kernel allocates them
		garbage[i] = 1
	}
	runtime.KeepAlive(garbage)
	rest()
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapSys-m.HeapReleased > 24<<20 {
		t.Errorf("%d bytes of heap are kept", m.HeapSys-m.HeapReleased)
	}
}
