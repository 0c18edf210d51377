package tree

import (
	"fmt"
	"os"
	"testing"

	"demesne/agents"
)

// TestModelFaults checks when the cause of an agent's end is said to be its model's server.
func TestModelFaults(t *testing.T) {
	for _, c := range []struct {
		statuses []int
		want     string
	}{
		{nil, ""},
		{[]int{200}, ""},
		{[]int{500}, "the model's server answered the last request with status 500"},
		{[]int{200, 500, 502, 503}, "the model's server answered the last 3 requests with status 503"},
		{[]int{500, -502}, "the model's server answered the last 2 requests with status 502 (upstream gave?up)"},
		{[]int{500, 500, 200}, ""},
		{[]int{500, 429}, ""},
		{[]int{500, 401}, ""},
		{[]int{500, 0}, ""}, // no answer: the connection broke
	} {
		path, text := t.TempDir()+"/records", ""
		for _, status := range c.statuses {
			fault := ""
			if status < 0 {
				status, fault = -status, `upstream gave\u001bup`
			}
			text += fmt.Sprintf("{\"status\":%d,\"fault\":\"%s\"}\n", status, fault)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &requests{meter: agents.NewMeter("messages")}
		r.watch(path, nil)
		r.read()
		if got := r.fault(); got != c.want {
			t.Errorf("%v: %q, want %q", c.statuses, got, c.want)
		}
	}
}
