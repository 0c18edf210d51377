package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// TestCommandOf checks the command that demesne jobs shows of a job, whichever frontend stored it.
func TestCommandOf(t *testing.T) {
	script := func(argv ...string) session.Request {
		return session.Request{Run: session.RunOptions{Command: runner.Command{Argv: argv}}}
	}
	for _, c := range []struct {
		request any
		want    string
	}{
		{jobLine{Dir: "/", Run: []string{"--background", "--", "make", "test"}}, "make test"},
		{jobLine{Dir: "/", Exec: []string{"ID", "ls"}}, "ID ls"},
		{script(session.Shell("echo a; echo b")...), "echo a; echo b"},
		{script("printf", "%s", "a"), "printf %s a"},
		{map[string]any{"Prompt": "Sort the list."}, "agent: Sort the list."},
		{"no request", ""},
	} {
		raw, err := json.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		if got := commandOf(&jobs.Job{Request: raw}); got != c.want {
			t.Errorf("%s: %q, not %q", raw, got, c.want)
		}
	}
}

// TestJobListing checks that the place of jobs is listed where one is on a cluster.
func TestJobListing(t *testing.T) {
	now := time.Now()
	all := []*jobs.Job{{ID: "a", Status: jobs.Queued, Created: now}}
	if got := jobListing(all, now); !strings.HasPrefix(got, "JOB  STATUS  AGE") {
		t.Errorf("%q", got)
	}
	all = append(all, &jobs.Job{ID: "b", Status: jobs.Running, On: "slurm", Node: "n\x1b7", Created: now}, &jobs.Job{ID: "c", Status: jobs.Queued, On: "slurm:x", Created: now})
	var places []string
	for line := range strings.Lines(jobListing(all, now)) {
		places = append(places, strings.Fields(line)[1])
	}
	if got := strings.Join(places, " "); got != "ON local n?7 slurm:x" {
		t.Errorf("%q", got)
	}
}
