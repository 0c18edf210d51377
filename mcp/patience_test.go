package mcp

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// TestPatience checks, with a fake clock, the maximum duration of each long call. A call is still open one minute
// before 48 hours and is then answered. The client sends nothing meanwhile, not even a response to a ping.
func TestPatience(t *testing.T) {
	for name, arguments := range map[string]string{
		"sandbox_script": `{"command":"x"}`,
		"sandbox_exec":   `{"sandbox_id":"s1","command":"x"}`,
		"sandbox_wait":   `{"job_id":"job-1","timeout_seconds":172800}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{jobs: map[string]*session.Job{"job-1": {Job: jobs.Job{ID: "job-1", Status: jobs.Succeeded}, Outcome: &session.RunResult{Result: &runner.Result{}}}}}
			d.hold = make(chan struct{})
			s, _ := serverFor(t, d, func(o *Options) { o.Heartbeat = time.Minute })
			in, feed := io.Pipe()
			var out writer
			served := make(chan error, 1)
			go func() { served <- s.ServeStdio(t.Context(), in, &out) }()
			fmt.Fprintf(feed, `%s{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", hello, name, arguments)
			time.Sleep(runner.Longest - time.Minute) // of the fake clock
			if strings.Contains(out.String(), `"id":"call"`) {
				t.Errorf("%s: answered before it was done", name)
			}
			close(d.hold)
			feed.Close()
			if err := <-served; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, answer, _ := strings.Cut(out.String(), `"id":"call"`)
			if answer, _, _ = strings.Cut(answer, "\n"); answer == "" || strings.Contains(answer, `"isError":true`) {
				t.Errorf("%s: answered %.300q", name, answer)
			}
		})
	}
}
