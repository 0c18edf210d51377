package mcp

import (
	"runtime"
	"sync"
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

// TestRestPools checks that an idle server keeps no buffer of a finished call in a pool.
func TestRestPools(t *testing.T) {
	var pool sync.Pool
	for range 8 { // with the race detector, a pool drops some at random
		buf := make([]byte, 2*keptHeap)
		pool.Put(&buf)
	}
	rest()
	if pool.Get() != nil {
		t.Error("a buffer is kept")
	}
}
