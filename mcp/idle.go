package mcp

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// restAfter is how long nothing is asked before memory is given back. An agent's next call often
	// comes sooner, and would only fault it in again.
	restAfter = time.Second
	// keptHeap is what a resting server may keep of it, in bytes.
	keptHeap = 12 << 20
)

// rest gives back to the kernel what calls that are over have left on the heap: the answer about a
// long output is several times as large on its way, and the runtime collects nothing where nothing is
// allocated any more.
func rest() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys-m.HeapReleased > keptHeap {
		debug.FreeOSMemory()
	}
}
