// Command bench measures demesne's programs against their bounds, and compares them with bwrap,
// runc, srt, skopeo, umoci, podman and buildah where those are installed. All run in the same session,
// because figures of different machines, or of different minutes, compare badly. Ratios do better.
//
//	go run ./integration/bench -bin bin
//
// "libcontainer alone" is package floor, a container with nothing that demesne adds. It shows how
// much of a cold start is due to Go and libcontainer.
//
// All programs run as one ordinary user with one id (uid 54321 if the bench is started by root),
// and their rounds are interleaved. Egress is measured between real sandboxes and servers in
// namespaces that the bench creates; MCP is measured by a client of demesne-mcp, and demesne serve by E2B's SDK. The bench reports
// progress on stderr, and prints medians, 99th percentiles and ratios. Then it prints each bound
// with ok or OVER, and exits 1 if one is over. Part peers prints README.md's comparison in Markdown.
// The tests measure no time; only the bench does.
//
// The bench drives the programs and imports no package of demesne except fixture. It builds
// package floor, and benchmarks of packages session and code, so it must run in the source tree.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// parts are what the bench measures, in this order.
var parts = []struct {
	name    string
	measure func(*machine)
}{
	{"startup", startup},
	{"warm", warm},
	{"cpu", cpu},
	{"many", many},
	{"idle", idle},
	{"forks", forks},
	{"streams", streams},
	{"inits", inits},
	{"images", images},
	{"layers", layers},
	{"build", builds},
	{"push", push},
	{"uploads", func(m *machine) { check(uploads(m)) }},
	{"egress", internet},
	{"minimal", withInternet},
	{"ssh", overSSH},
	{"routes", routes},
	{"docker", dockerRuns},
	{"agents", agentRuns},
	{"acp", acpStarts},
	{"kernels", kernels},
	{"mcp", mcp},
	{"e2b", e2b},
	{"trajectories", trajectories},
	{"thousands", func(m *machine) { check(thousands(m)) }},
	{"peers", peers},
}

func main() {
	// Modes in which the bench starts itself again: see client, onInternet, bareRelay and agent.
	again := map[string]func([]string) error{"load": load, "internet": onInternet, "relay": bareRelay, "agent": agent, "without-namespaces": withoutNamespaces}
	if len(os.Args) > 1 && again[os.Args[1]] != nil {
		fail(again[os.Args[1]](os.Args[2:]))
		return
	}
	dir := flag.String("bin", "bin", "directory of the programs")
	n := flag.Int("n", 40, "rounds")
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	part := flag.String("part", "", "only this: "+strings.Join(names, ", "))
	agents := flag.Int("trajectories", 128, "agents at once of part trajectories")
	live := flag.Int("live", 1000, "live sandboxes of part thousands")
	asRoot := flag.Bool("root", false, "part thousands as root, and not as an ordinary user")
	mib := flag.Int("mib", 400, "size of the image of part layers, in MiB; the part needs ten times as much disk")
	at := flag.String("at", "/var/tmp", "directory on the file system for sandboxes")
	flag.Parse()
	bin, err := filepath.Abs(*dir)
	if err == nil {
		err = narrow()
	}
	if err == nil {
		err = bench(bin, *at, *part, machine{rounds: *n, trajectoryCount: *agents, layersMiB: *mib, live: *live, asRoot: *asRoot})
	}
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(bin, at, only string, asked machine) error {
	// Abandoned processes of demesne become children of the bench. A cold start begins when it has none.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	m, err := newMachine(bin, at)
	if err != nil {
		return err
	}
	defer m.close()
	m.rounds, m.trajectoryCount, m.layersMiB, m.live, m.asRoot = asked.rounds, asked.trajectoryCount, asked.layersMiB, asked.live, asked.asRoot
	for _, part := range parts {
		if only != "" && only != part.name {
			continue
		}
		start := time.Now()
		if err := attempt(func() { part.measure(m) }); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", part.name, time.Since(start).Seconds())
	}
	return m.report()
}
