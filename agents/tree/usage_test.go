package tree

import (
	"fmt"
	"os"
	"testing"

	"demesne/agents"
	"demesne/runner"
)

// TestRecords checks that each record is read once, whole, and as soon as its line is complete.
func TestRecords(t *testing.T) {
	path := t.TempDir() + "/records"
	r := &records{path: path}
	var got []string
	read := func(text, want string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(text)
		f.Close()
		got = nil
		r.read(func(rec runner.UsageRecord) { got = append(got, rec.RequestID) })
		s := ""
		for _, id := range got {
			s += id
		}
		if s != want {
			t.Errorf("%q: read %q, want %q", text, s, want)
		}
	}
	r.read(func(runner.UsageRecord) { t.Error("a record of no file") })
	read(`{"requestId":"a"}`+"\n"+`{"requestId":`, "a")
	read(`"b"}`, "")
	read("\nnot JSON\n"+`{"requestId":"c"}`+"\n", "bc")
	read("", "")
}

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
		{[]int{500, 500, 200}, ""},
		{[]int{500, 429}, ""},
		{[]int{500, 401}, ""},
		{[]int{500, 0}, ""}, // no answer: the connection broke
	} {
		path, text := t.TempDir()+"/records", ""
		for _, status := range c.statuses {
			text += fmt.Sprintf("{\"status\":%d}\n", status)
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
