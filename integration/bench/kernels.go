package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// kernels measures sessions. The benchmark of package code does it, because a frontend adds its own time.
func kernels(m *machine) error {
	test := m.bin + "/code.test"
	build := exec.Command("go", "test", "-c", "-o", test, "./kernels/code")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmark of sessions: %w: %s", err, out)
	}
	cmd := m.command(test, "-test.run=^$", "-test.bench=^BenchmarkSessions$", "-test.benchtime=1x", "-test.timeout=20m")
	cmd.Env = append(cmd.Env, "DEMESNE_BIN="+m.bin, fmt.Sprintf("DEMESNE_ROUNDS=%d", m.rounds))
	out, err := cmd.CombinedOutput()
	_, line, found := strings.Cut(string(out), "figures: ")
	if err != nil || !found {
		return fmt.Errorf("measure sessions: %w: %s", err, out)
	}
	var f struct {
		Times map[string][]time.Duration
		Peak  int // KiB
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&f); err != nil {
		return fmt.Errorf("read what the benchmark of sessions measured: %w", err)
	}
	median := map[string]time.Duration{}
	for _, r := range []struct{ key, name, note string }{
		{"interpreter", "1+1, Python's own time", "compile, eval and repr"},
		{"live driver", "1+1 in a live driver, no sandbox", ""},
		{"live", "1+1 in a live session", ""},
		{"live ipykernel", "1+1 in a live ipykernel, no sandbox", "by demesne's client"},
		{"python", "python3 -c 'print(1+1)', no sandbox", ""},
		{"driver", "first result of a driver, no sandbox", ""},
		{"cold", "first result of a new session, no runner", ""},
		{"runner", "first result of a new session, runner alive", ""},
		{"prepared", "first result of a prepared session", ""},
		{"fork", "first result of a fork of a started Python", "no sandbox: what a fork server could reach"},
		{"ipykernel", "first result of ipykernel, no sandbox", "by demesne's client"},
		{"jupyter run", "jupyter run of print(1+1), no sandbox", "to its first output"},
		{"lines, python", "1e6 lines of python3 -u, no sandbox", "to /dev/null"},
		{"lines", "1e6 lines in a session", "6.9 MB, the last MiB is kept"},
	} {
		if len(f.Times[r.key]) > 0 {
			median[r.key] = m.add(r.name, r.note, f.Times[r.key])
		}
	}
	m.atMost("1+1 in a live session, over Python's own time, p50", median["live"]-median["interpreter"], 3*time.Millisecond)
	m.atMost("first result of a new Python session, prepared", median["prepared"], 25*time.Millisecond)
	m.atMost("first result of a new Python session, cold", median["cold"], 120*time.Millisecond)
	m.ratio("… against ipykernel without a sandbox", median["cold"], median["ipykernel"], 1)
	m.ratio("… against jupyter run", median["cold"], median["jupyter run"], 1)
	m.limit("peak memory of the client, 3 times 1e6 lines", f.Peak > 0 && f.Peak <= 64<<10, fmt.Sprintf("%.0f MiB", float64(f.Peak)/1024), "<= 64 MiB")
	return nil
}
