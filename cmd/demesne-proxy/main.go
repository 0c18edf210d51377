// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-proxy is the egress proxy of a runner's sandboxes, as the diagram in package
// runner/network/proxyclient shows. Only demesne-runner starts it. Each sandbox has its own proxy (package proxy). The
// sockets identify the sandbox.
//
// The process is in the host's network namespace and in the runner's user namespace. It has no capability and writes
// only to descriptors that it receives. It reads only what resolving names and verifying certificates need: see confine.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"demesne/runner/network/proxyclient"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-proxy: %v\n", err)
		os.Exit(125)
	}
}

func run() error {
	socket := os.NewFile(proxyclient.FDRunner, "runner")
	if st, err := socket.Stat(); err != nil || st.Mode()&os.ModeSocket == 0 || len(os.Args) != 1 {
		return errors.New("to be started by demesne-runner, not by hand")
	}
	if err := confine(); err != nil {
		return err
	}
	if err := serveRunner(socket); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
