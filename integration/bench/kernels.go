package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// kernels measures sessions. The benchmark of package code does it, because a frontend adds its own time.
func kernels(m *machine) {
	_, line, _ := strings.Cut(m.benchmark("./kernels/code", "BenchmarkSessions", "1x", fmt.Sprintf("DEMESNE_ROUNDS=%d", m.rounds)), "figures: ")
	var f struct {
		Times map[string][]time.Duration
		Peak  int // KiB
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&f); err != nil {
		check(fmt.Errorf("read what the benchmark of sessions measured: %w", err))
	}
	took := m.addAll(f.Times,
		figure{"interpreter", "1+1, Python's own time", "compile, eval and repr"},
		figure{"live driver", "1+1 in a live driver, no sandbox", ""},
		figure{"live", "1+1 in a live session", ""},
		figure{"live ipykernel", "1+1 in a live ipykernel, no sandbox", "by demesne's client"},
		figure{"python", "python3 -c 'print(1+1)', no sandbox", ""},
		figure{"driver", "first result of a driver, no sandbox", ""},
		figure{"cold", "first result of a new session, no runner", ""},
		figure{"runner", "first result of a new session, runner alive", ""},
		figure{"prepared", "first result of a prepared session", ""},
		figure{"fork", "first result of a fork of a started Python", "no sandbox: what a fork server could reach"},
		figure{"ipykernel", "first result of ipykernel, no sandbox", "by demesne's client"},
		figure{"jupyter run", "jupyter run of print(1+1), no sandbox", "to its first output"},
		figure{"lines, python", "1e6 lines of python3 -u, no sandbox", "to /dev/null"},
		figure{"lines", "1e6 lines in a session", "6.9 MB, the last MiB is kept"})
	m.atMost("1+1 in a live session, over Python's own time, p50", took["live"]-took["interpreter"], 3*time.Millisecond)
	m.atMost("first result of a new Python session, prepared", took["prepared"], 25*time.Millisecond)
	m.atMost("first result of a new Python session, cold", took["cold"], 120*time.Millisecond)
	m.ratio("… against ipykernel without a sandbox", took["cold"], took["ipykernel"], 1)
	m.ratio("… against jupyter run", took["cold"], took["jupyter run"], 1)
	m.mib("peak memory of the client, 3 times 1e6 lines", float64(f.Peak)/1024, 64)
}
