package mcp

import (
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// restAfter is the idle time before memory is returned to the kernel. An agent's next call often
	// comes within it, and would only fault the memory in again.
	restAfter = time.Second
	// keptHeap is the heap size, in bytes, up to which an idle server returns nothing.
	keptHeap = 4 << 20
)

// rest returns free heap memory of finished calls to the kernel. Encoding a long output takes several
// times its size, and the runtime does not collect garbage while nothing is allocated.
func rest() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys-m.HeapReleased > keptHeap {
		runtime.GC() // pools, such as encoding/json's of buffers, give up an object only in the second collection
		debug.FreeOSMemory()
	}
}
