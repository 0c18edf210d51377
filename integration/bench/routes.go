package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// routes measures what a route adds to the latency of a server-sent event. No flag gives a sandbox a route, so the
// benchmark of package session does it.
func routes(m *machine) {
	out := m.benchmark("./session", "BenchmarkRouteEvent", "10x")
	took := map[string]time.Duration{}
	for _, f := range regexp.MustCompile(`(\S+) (direct|route)-us`).FindAllStringSubmatch(out, -1) {
		took[f[2]] = time.Duration(must(strconv.ParseFloat(f[1], 64)) * float64(time.Microsecond))
	}
	if len(took) != 2 {
		check(fmt.Errorf("read results of the route benchmark: %s", out))
	}
	m.atMost("server-sent event, through a route over direct", took["route"]-took["direct"], time.Millisecond)
}
