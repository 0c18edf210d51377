package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// routes measures what a route adds to the latency of a server-sent event. No flag gives a sandbox a route, so the
// benchmark of package session does it.
func routes(m *machine) error {
	test := m.bin + "/session.test"
	build := exec.Command("go", "test", "-c", "-o", test, "./session")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmark of routes: %w: %s", err, out)
	}
	cmd := m.command(test, "-test.run=^$", "-test.bench=^BenchmarkRouteEvent$", "-test.benchtime=10x")
	cmd.Env = append(cmd.Env, "DEMESNE_BIN="+m.bin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("measure routes: %w: %s", err, out)
	}
	took := map[string]time.Duration{}
	for _, f := range regexp.MustCompile(`(\S+) (direct|route)-us`).FindAllStringSubmatch(string(out), -1) {
		n, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return fmt.Errorf("read what the benchmark of routes measured: %w", err)
		}
		took[f[2]] = time.Duration(n * float64(time.Microsecond))
	}
	if len(took) != 2 {
		return fmt.Errorf("read results of the route benchmark: %s", out)
	}
	m.atMost("server-sent event, through a route over direct", took["route"]-took["direct"], time.Millisecond)
	return nil
}
