// Package inside is libcontainer's half of demesne-runner, which that executes anew for
// each sandbox and which becomes demesne-init. It is a package of its own, with an init
// function, so that it begins before the packages of the network are initialized: the
// runtime does that in the order of import paths as far as imports let it, and net/http,
// which goproxy needs, comes after this one. goproxy parses a key, for 0.8 ms.
package inside

import (
	"os"
	"runtime"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C, before the Go runtime
)

func init() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		runtime.LockOSThread()
		libcontainer.Init() // does not return
	}
}
