package rest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"demesne/client"
	"demesne/runner"
	"demesne/session"
)

// TestResultOf checks that each field of a result in the API is one of the runner's result, or made here.
func TestResultOf(t *testing.T) {
	names := func(typ reflect.Type) (all []string) {
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, name)
		}
		return all
	}
	known := append(names(reflect.TypeFor[runner.Result]()), "stdout", "stderr", "run", "warnings")
	for _, name := range names(reflect.TypeFor[client.Result]()) {
		if !slices.Contains(known, name) {
			t.Errorf("%q: runner.Result does not have it", name)
		}
	}
	r := runner.Result{
		Sandbox: "s", ExitCode: 137, Reason: runner.OOM, Detail: "d", Out: "/o/run-1", Seconds: 1.5, Spent: runner.Spent{CPU: 0.5, MaxRSS: 1 << 40}, Restarted: true,
		MissingSecrets: []string{"KEY"}, Denied: []runner.Blocked{{Host: "a.test", Port: 443, Reason: "no rule", Allow: "a.test", Times: 2, Failed: true}},
	}
	want := client.Result{
		Sandbox: "s", ExitCode: 137, Reason: "oom", Detail: "d", Run: "run-1", Seconds: 1.5, Spent: client.Spent{CPU: 0.5, MaxRSS: 1 << 40}, Restarted: true,
		Missing: []string{"KEY"}, Denied: []client.Denied{{Host: "a.test", Port: 443, Reason: "no rule", Allow: "a.test", Times: 2, Failed: true}},
		Stdout: client.Output{Text: "x", Bytes: 9, Cut: true}, Warnings: []string{"w"},
	}
	if got := resultOf(&session.RunResult{Result: &r, Stdout: session.Tail{Text: "x", Bytes: 9, Cut: true}}, want.Warnings); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nnot %+v", got, want)
	}
}
