package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// mcp measures demesne-mcp over stdio: its start, its idle cost, and its tools.
func mcp(m *machine) error {
	if err := initialize(m); err != nil {
		return err
	}
	s, err := m.serve()
	if err != nil {
		return err
	}
	defer s.close()
	for _, part := range []func(*session) error{trips, parallel, gigabyte, rest} {
		if err := part(s); err != nil {
			return err
		}
	}
	return nil
}

// initialize measures the time from the start of the server to its first answer, without a runner.
func initialize(m *machine) error {
	var times []time.Duration
	for round := range 23 {
		if err := alone(); err != nil {
			return err
		}
		start := time.Now()
		s, err := m.serve()
		if err != nil {
			return err
		}
		if d := time.Since(start); round >= 3 {
			times = append(times, d)
		}
		if err := s.close(); err != nil {
			return err
		}
	}
	m.atMost("demesne-mcp, start to answered initialize", m.add("start to answered initialize", "", times), 60*time.Millisecond)
	return nil
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
func trips(s *session) error {
	made, err := s.call("sandbox_create", params{"image": "host"})
	if err != nil {
		return err
	}
	defer s.call("sandbox_destroy", params{"sandbox_id": made.SandboxID})
	for _, w := range ways(made.SandboxID) {
		if err := s.trip(w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (s *session) trip(w way) error {
	rounds := s.rounds
	if w.pause == 0 {
		rounds *= 3
	}
	var times []time.Duration
	for round := range rounds + 4 {
		time.Sleep(w.pause)
		start := time.Now()
		r, err := s.call(w.tool, w.params[round%len(w.params)])
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", r.ExitCode)
		}
		if err != nil {
			return err
		}
		if round >= 4 { // the first calls find no prepared sandbox
			times = append(times, time.Since(start))
		}
	}
	s.atMost(w.name+", p50", s.add(w.name, "", times), w.p50)
	if w.p99 > 0 {
		s.atMost(w.name+", p99", s.rows[len(s.rows)-1].P99, w.p99)
	}
	return nil
}

// parallel makes 100 calls at once.
func parallel(s *session) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var times []time.Duration
	start := time.Now()
	for range 100 {
		wg.Go(func() {
			r, err := s.call("sandbox_script", params{"image": "host", "command": "true"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("exit code %d", r.ExitCode)
			}
			failed, times = errors.Join(failed, err), append(times, time.Since(start))
		})
	}
	wg.Wait()
	total := time.Since(start)
	s.add("each of 100 sandbox_script at once", "", times)
	s.atMost("100 sandbox_script at once", total, 1500*time.Millisecond)
	s.limit("… failing", failed == nil, "0 "+errText(failed), "0")
	return nil
}

// gigabyte checks that 1 GiB of output is counted to the byte, that its end is kept, and that it is not held in
// memory.
func gigabyte(s *session) error {
	done, peaks := make(chan struct{}), make(chan map[string]float64)
	go func() { peaks <- peak(done) }()
	start := time.Now()
	r, err := s.call("sandbox_script", params{"image": "host", "command": "yes 0123456 | head -c 1073741824; echo the end", "egress": "none"})
	s.add("sandbox_script, 1 GiB of output", "", []time.Duration{time.Since(start)})
	close(done)
	most := <-peaks
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.OutputDir)
	const want = 1<<30 + 8
	s.limit("1 GiB of output, stdout_bytes", r.StdoutBytes == want, fmt.Sprint(r.StdoutBytes), fmt.Sprint(want))
	st, err := os.Stat(filepath.Join(r.OutputDir, "stdout.log"))
	if err != nil {
		return err
	}
	s.limit("… stdout.log", st.Size() == want, fmt.Sprint(st.Size()), fmt.Sprint(want))
	tail := "0123456\n0123456\nthe end\n"
	s.limit("… tail", r.Truncated && strings.HasSuffix(r.Stdout, tail) && len(r.Stdout) <= 1<<20+1<<10, fmt.Sprintf("%d bytes", len(r.Stdout)), "the end, 1 MiB and a mark")
	for _, name := range []string{"demesne-mcp", "demesne-runner"} {
		s.limit("… memory of "+name, most[name] > 0 && most[name] <= 64, fmt.Sprintf("%.0f MiB", most[name]), "<= 64 MiB")
	}
	return nil
}

// peak returns the most memory that each descendant program held, in MiB, until done is closed.
func peak(done <-chan struct{}) map[string]float64 {
	most := map[string]float64{}
	for {
		for _, p := range family() {
			most[p.name] = max(most[p.name], anonymous(p.pid))
		}
		select {
		case <-done:
			return most
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// rest measures the CPU time and memory of an idle server that has served calls before.
func rest(s *session) error {
	time.Sleep(2 * time.Second)
	pid := s.cmd.Process.Pid
	before := ticks(pid)
	time.Sleep(3 * time.Second)
	s.limit("idle server, CPU in 3 s", ticks(pid)-before <= 1, fmt.Sprint(10*(ticks(pid)-before), " ms"), "<= 10 ms")
	resident := memory(pid, "VmRSS:")
	s.limit("idle server, resident", resident > 0 && resident <= 40, fmt.Sprintf("%.1f MiB", resident), "<= 40 MiB")
	return nil
}
