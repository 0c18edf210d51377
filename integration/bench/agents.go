package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/integration/fixture"
)

// The agents of a person's file: this program, in its mode agent.
const benchAgent = `{"agents":[{"name":"bench","command":"bench","models":["bench-1"],"headless":["agent","{prompt}"],"resume":["agent","{session}"],"format":"claude",
"context":"CONTEXT.txt","env":{"BENCH_URL":"{url}"},"servers":{"entry":"{name}"},
"api":{"port":8083,"usage":"messages","allow":["POST /v1/messages"]},
"credentials":[{"env":"BENCH_KEY","base":"http://127.0.0.1:1","base_env":"BENCH_BASE","header":"X-Api-Key","inside":{"BENCH_TOKEN":"{token}"}}]}]}`

// agent is the mode in which the bench is an agent's program: it sends one request, and prints the answer as its result.
func agent([]string) error {
	r, err := http.NewRequest(http.MethodPost, os.Getenv("BENCH_URL")+"/v1/messages", strings.NewReader(`{"model":"m","messages":[],"tools":[{"name":"x"}]}`))
	if err != nil {
		return err
	}
	r.Header.Set("X-Api-Key", os.Getenv("BENCH_TOKEN"))
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s, %w", a.Status, err)
	}
	time.Sleep(holdAgent())
	fmt.Println(`{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s"}`)
	return nil
}

// holdAgent is how long the program stays after its request, so that many are alive at once.
func holdAgent() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("BENCH_HOLD"))
	return d
}

// agentRuns measures the overhead of an agent run: from the start of demesne to the first request at the model's server,
// minus the same for the program alone on this machine. Then it runs 20 agents at once.
func agentRuns(m *machine) error {
	arrived := make(chan time.Time, 100)
	model := &fixture.Model{Script: func(fixture.ModelRequest) fixture.Answer {
		arrived <- time.Now()
		return fixture.Answer{Text: "done"}
	}}
	url, stop := model.Start()
	defer stop()
	rows := filepath.Join(m.dir, "agents.json")
	if err := os.WriteFile(rows, []byte(benchAgent), 0o644); err != nil {
		return err
	}
	env := m.env
	defer func() { m.env = env }()
	m.env = append(slices.Clip(env), "DEMESNE_AGENTS_FILE="+rows, "BENCH_KEY=key", "BENCH_BASE="+url, "BENCH_URL="+url, "BENCH_TOKEN=t",
		"DEMESNE_CODEX_ENABLED=false", "DEMESNE_CLAUDE_CODE_ENABLED=false")
	first := func(argv ...string) (time.Duration, error) {
		start := time.Now()
		if _, err := m.time(argv...); err != nil {
			return 0, err
		}
		return (<-arrived).Sub(start), nil
	}
	times := map[string][]time.Duration{}
	run := []string{"env", "PATH=" + m.bin + ":/usr/bin:/bin", filepath.Join(m.bin, "demesne"), "agent", "run", "x"}
	run[0] = "/usr/bin/env"
	for round := range m.rounds + 3 {
		for name, argv := range map[string][]string{"agent's program alone, to its first request": {"bench", "agent"}, "agent run, to the first request": run} {
			d, err := first(argv...)
			if err != nil {
				return err
			}
			if round >= 3 { // the runner is warm, and its pool is full
				times[name] = append(times[name], d)
			}
		}
	}
	var medians []time.Duration
	for _, name := range []string{"agent's program alone, to its first request", "agent run, to the first request"} {
		medians = append(medians, m.add(name, "", times[name]))
	}
	m.atMost("overhead of an agent run, to the first request", medians[1]-medians[0], 60*time.Millisecond)
	return manyAgents(m, run)
}

// manyAgents runs 20 agents at once, each with a sandbox that lives for a second.
func manyAgents(m *machine, run []string) error {
	const n = 20
	m.env = append(m.env, "BENCH_HOLD=1s")
	rows, err := os.ReadFile(filepath.Join(m.dir, "agents.json"))
	if err != nil {
		return err
	}
	rows = bytes.Replace(rows, []byte(`"env":{`), []byte(`"env":{"BENCH_HOLD":"1s",`), 1)
	if err := os.WriteFile(filepath.Join(m.dir, "agents.json"), rows, 0o644); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	failed, rss, cpu := 0, int64(0), time.Duration(0)
	start := time.Now()
	for range n {
		wg.Go(func() {
			cmd := m.command(run...)
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				fmt.Fprintf(os.Stderr, "bench: agent: %v: %s\n", err, out)
				return
			}
			use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			rss, cpu = max(rss, use.Maxrss), cpu+cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
		})
	}
	wg.Wait()
	m.limit("20 agents at once that do not fail", failed == 0, fmt.Sprint(n-failed), "20")
	m.rows = append(m.rows, row{Name: "20 agents at once, each for 1 s", Median: time.Since(start),
		Note: fmt.Sprintf("the frontend agent: at most %d MiB, %.0f ms of CPU each", rss>>10, cpu.Seconds()*1000/n)})
	return nil
}
