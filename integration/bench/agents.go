package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
func agentRuns(m *machine) {
	arrived := make(chan time.Time, 100)
	model := &fixture.Model{Script: func(fixture.ModelRequest) fixture.Answer {
		arrived <- time.Now()
		return fixture.Answer{Text: "done"}
	}}
	url, stop := model.Start()
	defer stop()
	rows := filepath.Join(m.dir, "agents.json")
	check(os.WriteFile(rows, []byte(benchAgent), 0o644))
	env := m.env
	defer func() { m.env = env }()
	m.env = append(slices.Clip(env), "DEMESNE_AGENTS_FILE="+rows, "BENCH_KEY=key", "BENCH_BASE="+url, "BENCH_URL="+url, "BENCH_TOKEN=t",
		"DEMESNE_CODEX_ENABLED=false", "DEMESNE_CLAUDE_CODE_ENABLED=false")
	first := func(argv ...string) func() time.Duration {
		return func() time.Duration {
			start := time.Now()
			must(m.time(argv...))
			return (<-arrived).Sub(start)
		}
	}
	run := []string{"/usr/bin/env", "PATH=" + m.bin + ":/usr/bin:/bin", filepath.Join(m.bin, "demesne"), "agent", "run", "x"}
	const alone, sandboxed = "agent's program alone, to its first request", "agent run, to the first request"
	took := m.race(m.rounds, coldRounds, atOnce, entry{name: alone, run: first("bench", "agent")}, entry{name: sandboxed, run: first(run...)})
	m.atMost("overhead of an agent run, to the first request", took[sandboxed]-took[alone], 60*time.Millisecond)
	m.manyAgents(rows, run)
}

// manyAgents runs 20 agents at once, each with a sandbox that lives for a second.
func (m *machine) manyAgents(rows string, run []string) {
	const n = 20
	m.env = append(m.env, "BENCH_HOLD=1s")
	check(os.WriteFile(rows, []byte(strings.Replace(benchAgent, `"env":{`, `"env":{"BENCH_HOLD":"1s",`, 1)), 0o644))
	agents := make([]*exec.Cmd, n)
	took, failed := together(n, func(i int) error {
		agents[i] = m.command(run...)
		out, err := agents[i].CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	rss, cpu := int64(0), time.Duration(0)
	for _, a := range agents {
		if p := a.ProcessState; p != nil { // nil: it did not start
			rss, cpu = max(rss, p.SysUsage().(*syscall.Rusage).Maxrss), cpu+p.UserTime()+p.SystemTime()
		}
	}
	m.limit("20 agents at once that do not fail", len(failed) == 0, count(n-len(failed), failed), "20")
	m.rows = append(m.rows, row{Name: "20 agents at once, each for 1 s", Median: took,
		Note: fmt.Sprintf("the frontend agent: at most %d MiB, %.0f ms of CPU each", rss>>10, cpu.Seconds()*1000/n)})
}
