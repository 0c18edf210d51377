package run

import (
	"encoding/json"
	"testing"

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
