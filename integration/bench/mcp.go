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

// mcp measures demesne-mcp over stdio: its start, itself at rest, and its tools.
func mcp(m *machine) error {
	if err := initialize(m); err != nil {
		return err
	}
	s, err := m.serve()
	if err != nil {
		return err
	}
	defer s.close()
	for _, part := range []func(*session) error{trips, pooled, parallel, gigabyte, rest} {
		if err := part(s); err != nil {
			return err
		}
	}
	return nil
}

// initialize is from the start of the server to its first answer, with no runner there.
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

// trips times calls one after the other; a sandbox that stays keeps the runner alive.
func trips(s *session) error {
	made, err := s.call("sandbox_create", params{"image": "host"})
	if err != nil {
		return err
	}
	defer s.call("sandbox_destroy", params{"sandbox_id": made.SandboxID})
	cases := []struct {
		name, tool string
		params     params
		p50, p99   time.Duration
	}{
		{"sandbox_script", "sandbox_script", params{"image": "host", "command": "true"}, 9 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_script, egress none", "sandbox_script", params{"image": "host", "command": "true", "egress": "none"}, 9 * time.Millisecond, 20 * time.Millisecond},
		{"sandbox_exec", "sandbox_exec", params{"sandbox_id": made.SandboxID, "command": "true"}, 1500 * time.Microsecond, 0},
	}
	times := map[string][]time.Duration{}
	for round := range 3*s.rounds + 3 {
		for _, c := range cases {
			start := time.Now()
			r, err := s.call(c.tool, c.params)
			if err != nil {
				return err
			}
			if r.ExitCode != 0 {
				return fmt.Errorf("%s: exit code %d", c.tool, r.ExitCode)
			}
			if round >= 3 {
				times[c.name] = append(times[c.name], time.Since(start))
			}
		}
	}
	for _, c := range cases {
		s.atMost(c.name+" round trip, p50", s.add(c.name+" round trip", "", times[c.name]), c.p50)
		if c.p99 > 0 {
			s.atMost(c.name+" round trip, p99", s.rows[len(s.rows)-1].P99, c.p99)
		}
	}
	return nil
}

// pooled times scripts as a person's agent has them, with pauses: a sandbox made in advance is there for each.
func pooled(s *session) error {
	made, err := s.call("sandbox_create", params{"image": "host"})
	if err != nil {
		return err
	}
	defer s.call("sandbox_destroy", params{"sandbox_id": made.SandboxID})
	for _, c := range []string{"none", "package-managers"} {
		var times []time.Duration
		for round := range s.rounds + 3 {
			time.Sleep(150 * time.Millisecond)
			start := time.Now()
			r, err := s.call("sandbox_script", params{"image": "host", "command": "true", "egress": c})
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("sandbox_script: exit code %d", r.ExitCode)
			}
			if err != nil {
				return err
			}
			if round >= 3 {
				times = append(times, time.Since(start))
			}
		}
		s.atMost("sandbox_script from the pool, p50, egress "+c, s.add("sandbox_script with pauses", "egress "+c, times), 3*time.Millisecond)
	}
	return nil
}

// parallel has 100 calls open at once.
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

// gigabyte of output has to be counted to the byte, kept to the end, and never held.
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

// peak is the most that each program of ours held, in MiB, until done.
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

// rest is what a server that has worked costs while nobody asks anything of it.
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
