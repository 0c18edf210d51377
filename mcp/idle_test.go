package mcp

import (
	"runtime"
	"testing"
)

// What a large answer left is given back when nothing is asked any more.
func TestRest(t *testing.T) {
	garbage := make([]byte, 64<<20)
	for i := range garbage { // else there are no pages
		garbage[i] = 1
	}
	runtime.KeepAlive(garbage)
	rest()
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapSys-m.HeapReleased > 2*keptHeap {
		t.Errorf("%d bytes of heap are kept", m.HeapSys-m.HeapReleased)
	}
}
