package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mcp measures demesne-mcp over stdio: its start, its idle cost, and its tools.
func mcp(m *machine) {
	m.initialize()
	s := must(m.serve())
	defer s.close()
	s.trips()
	s.parallel()
	s.gigabyte()
	s.rest()
}

// initialize measures the time from the start of the server to its first answer, without a runner.
func (m *machine) initialize() {
	const name = "start to answered initialize"
	took := m.cold(20, entry{name: name, run: func() time.Duration {
		start := time.Now()
		s := must(m.serve())
		d := time.Since(start)
		check(s.close())
		return d
	}})
	m.atMost("demesne-mcp, start to answered initialize", took[name], 60*time.Millisecond)
}

// way describes how an agent calls: the tool, the arguments (which take turns), and the pause before each call.
type way struct {
	name     string
	tool     string
	params   []params
	pause    time.Duration
	p50, p99 time.Duration // bounds; 0: no bound
}

// ways lists the ways of calling. Back to back, the pool cannot stay filled, and each call pays for creating a
// sandbox. With pauses a prepared sandbox is ready, even for an agent that alternates between shapes.
func ways(id string) []way {
	script := func(egress string) params { return params{"image": "host", "command": "true", "egress": egress} }
	none, mode := script("none"), script("package-managers")
	const thinking = 150 * time.Millisecond
	return []way{
		{"sandbox_script, one shape, back to back", "sandbox_script", []params{none}, 0, 9 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_script, two shapes, back to back", "sandbox_script", []params{none, mode}, 0, 9 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_script, one shape, with pauses", "sandbox_script", []params{none}, thinking, 3 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_script, default egress, with pauses", "sandbox_script", []params{mode}, thinking, 3 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_script, two shapes, with pauses", "sandbox_script", []params{none, mode}, thinking, 3 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_exec, back to back", "sandbox_exec", []params{{"sandbox_id": id, "command": "true"}}, 0, 1500 * time.Microsecond, 0},
	}
}

// trips times calls one after the other. A persistent sandbox keeps the runner alive.
func (s *session) trips() {
	made := must(s.call("sandbox_create", params{"image": "host"}))
	defer s.call("sandbox_destroy", params{"sandbox_id": made.SandboxID})
	for _, w := range ways(made.SandboxID) {
		rounds, round := s.rounds, 0
		if w.pause == 0 {
			rounds *= 3
		}
		const cold = 4 // the first calls find no prepared sandbox
		took := s.race(rounds, cold, func() error { time.Sleep(w.pause); return nil }, entry{name: w.name, run: func() time.Duration {
			round++
			return must(s.timed(w.tool, w.params[round%len(w.params)]))
		}})
		s.atMost(w.name+", p50", took[w.name], w.p50)
		if w.p99 > 0 {
			s.atMost(w.name+", p99", s.rows[len(s.rows)-1].P99, w.p99)
		}
	}
}

// timed returns the time of a call whose command must succeed.
func (s *session) timed(tool string, p params) (time.Duration, error) {
	start := time.Now()
	r, err := s.call(tool, p)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d", tool, r.ExitCode)
	}
	return time.Since(start), err
}

// parallel makes 100 calls at once.
func (s *session) parallel() {
	s.hundred("100 sandbox_script at once", "each of 100 sandbox_script at once", func() (time.Duration, error) {
		return s.timed("sandbox_script", params{"image": "host", "command": "true"})
	})
}

// gigabyte checks that 1 GiB of output is counted to the byte, that its end is kept, and that it is not held in
// memory.
func (s *session) gigabyte() {
	var r *toolResult
	most := peaks(20*time.Millisecond, func() {
		s.repeated(1, "sandbox_script, 1 GiB of output", "", func() time.Duration {
			return since(func() {
				r = must(s.call("sandbox_script", params{"image": "host", "command": "yes 0123456 | head -c 1073741824; echo the end", "egress": "none"}))
			})
		})
	})
	defer os.RemoveAll(r.OutputDir)
	const want = 1<<30 + 8
	s.limit("1 GiB of output, stdout_bytes", r.StdoutBytes == want, fmt.Sprint(r.StdoutBytes), fmt.Sprint(want))
	size := must(os.Stat(filepath.Join(r.OutputDir, "stdout.log"))).Size()
	s.limit("… stdout.log", size == want, fmt.Sprint(size), fmt.Sprint(want))
	tail := "0123456\n0123456\nthe end\n"
	s.limit("… tail", r.Truncated && strings.HasSuffix(r.Stdout, tail) && len(r.Stdout) <= 1<<20+1<<10, fmt.Sprintf("%d bytes", len(r.Stdout)), "the end, 1 MiB and a mark")
	for _, name := range []string{"demesne-mcp", "demesne-runner"} {
		s.mib("… memory of "+name, most[name], 64)
	}
}

// rest measures the CPU time and memory of an idle server that has served calls before.
func (s *session) rest() {
	time.Sleep(2 * time.Second)
	pid := s.cmd.Process.Pid
	before := ticks(pid)
	time.Sleep(3 * time.Second)
	used := ticks(pid) - before
	s.limit("idle server, CPU in 3 s", used <= 1, fmt.Sprint(10*used, " ms"), "<= 10 ms")
	s.mib("idle server, resident", memory(pid, "VmRSS:"), 40)
}
