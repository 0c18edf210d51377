// Command bench measures demesne's programs against the bounds they were given, and
// against bwrap, runc, srt, skopeo, umoci and podman where those are installed, in the same run: figures of
// different machines, or of different minutes, compare badly; ratios do better.
//
//	go run ./integration/bench -bin bin
//
// "libcontainer alone" is no program of others: package floor, a container with nothing that demesne adds, tells what of
// a cold start is Go's and libcontainer's.
//
// All programs run as one ordinary user with one id (started by root: uid 54321), the
// rounds of all of them interleaved. Egress is measured between real sandboxes and servers
// in namespaces that this program makes, MCP as a client of demesne-mcp. It says on stderr what it measures as it goes, prints medians, 99th percentiles and ratios,
// then each bound with ok or OVER, and exits 1 if one is over. No test does this:
// nothing timed belongs in a test.
//
// It drives programs and imports nothing of demesne. It builds package floor, so it is run in the source tree.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	// What this program starts of itself: see client and internet.
	again := map[string]func([]string) error{"load": load, "internet": onInternet, "relay": bareRelay}
	if len(os.Args) > 1 && again[os.Args[1]] != nil {
		fail(again[os.Args[1]](os.Args[2:]))
		return
	}
	dir := flag.String("bin", "bin", "directory of the programs")
	n := flag.Int("n", 40, "rounds")
	part := flag.String("part", "", "only this: startup, warm, many, idle, forks, streams, inits, images, egress or mcp")
	at := flag.String("at", "/var/tmp", "directory whose file system sandboxes are kept on")
	flag.Parse()
	bin, err := filepath.Abs(*dir)
	if err == nil {
		err = narrow()
	}
	if err == nil {
		err = bench(bin, *at, *n, *part)
	}
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(bin, at string, n int, only string) error {
	// What demesne starts and leaves becomes our child: a cold start is one with none.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	m, err := newMachine(bin, at)
	if err != nil {
		return err
	}
	defer m.close()
	m.rounds = n
	for _, part := range []struct {
		name    string
		measure func(*machine) error
	}{{"startup", startup}, {"warm", warm}, {"many", many}, {"idle", idle}, {"forks", forks}, {"streams", streams}, {"inits", inits}, {"images", images},
		{"egress", internet}, {"mcp", mcp}} {
		if only != "" && only != part.name {
			continue
		}
		start := time.Now()
		if err := part.measure(m); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", part.name, time.Since(start).Seconds())
	}
	return m.report()
}
