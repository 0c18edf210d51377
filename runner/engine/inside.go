package engine

import (
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C, before the Go runtime
)

// Inside is libcontainer's half of demesne-runner, which that executes anew for each
// sandbox and which becomes demesne-init. The calling goroutine has to be locked to the
// first thread. It does not return.
func Inside() { libcontainer.Init() }
