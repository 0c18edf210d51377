// Package daemon is the program demesne-proxy, which decides what sandboxes may reach. It has two uses.
//
// Without arguments it is the egress proxy of a runner's sandboxes; see package runner/network/proxyclient. Only
// demesne-runner starts it so, and it confines itself before it reads anything.
//
// With a verb it works on policies and decision logs. demesne starts it, or executes it in its own place, because the
// parsers would slow down every run without a network:
//
//	demesne-proxy rules [--mode MODE] [--file FILE]   the rules of a run; see session
//	demesne-proxy list [--json] [MODE]                the modes, or what one allows here
//	demesne-proxy lint FILE…                          the errors in policy files
//	demesne-proxy log [--json] LOG                    a run's decisions, as text
//	demesne-proxy suggest [--json] LOG                the policy file that a run would have needed
//	demesne-proxy replay [--json] POLICY LOG          what a policy would have blocked
//	demesne-proxy toml                                whether stdin is TOML; if not, the first invalid line
//
// The verbs read files and the environment, and use no network. Like demesne they print the answer on stdout, and an
// error as one line on stderr. They exit 1 if they found a problem, and 125 if they failed.
package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"

	"demesne/internal/procself"
	"demesne/runner/network/proxyclient"
)

// Main executes the command line of the process, and exits.
func Main() {
	if len(os.Args) > 1 {
		procself.DefaultSIGQUIT()
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-proxy: %v\n", err)
		os.Exit(exitFailed)
	}
}

// serve serves the runner that started this process.
func serve() error {
	socket := os.NewFile(proxyclient.FDRunner, "runner")
	if st, err := socket.Stat(); err != nil || st.Mode()&os.ModeSocket == 0 {
		return errors.New("demesne-runner starts this program; users call demesne egress")
	}
	if err := confine(); err != nil {
		return err
	}
	if err := serveRunner(socket); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
