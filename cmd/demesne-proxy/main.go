// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-proxy is the egress proxy of a runner's sandboxes; see package runner/network/proxyclient.
// Only demesne-runner starts it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"demesne/runner/network/proxyclient"
	"demesne/runner/network/proxyserver"
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
		return errors.New("demesne-runner starts this program; do not start it directly")
	}
	if err := proxyserver.Confine(); err != nil {
		return err
	}
	if err := proxyserver.Run(socket); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
