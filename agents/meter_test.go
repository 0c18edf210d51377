package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/mcp/backend"
	"demesne/runner"
)

// request returns the record of one request at a fixed time.
func request(id, model string, t backend.Tokens) runner.UsageRecord {
	return runner.UsageRecord{
		RequestID: id, Time: lab.Add(123 * time.Millisecond), Status: 200, Model: model,
		Input: t.Input, Output: t.Output, CacheCreation: t.CacheCreation, CacheRead: t.CacheRead,
	}
}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func read(t *testing.T, root *os.Root, name string) string {
	t.Helper()
	b, err := root.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMeterFiles(t *testing.T) {
	for usage, model := range map[string]string{"messages": "claude-sonnet-5", "responses": "gpt-5.6-sol"} {
		t.Run(usage, func(t *testing.T) {
			dir := openRoot(t, t.TempDir())
			m := NewMeter(usage)
			for i := range 2 {
				r := request(fmt.Sprint("req_", i), model, backend.Tokens{Input: 100, Output: 50, CacheCreation: 20, CacheRead: 30})
				r.Reasoning = 10
				m.Add(r)
				if err := m.WriteFiles(dir); err != nil {
					t.Fatal(err)
				}
			}
			m.Add(request("req_2", "another-model", backend.Tokens{Input: 5}))
			m.Add(runner.UsageRecord{Status: 200, Missing: true, Time: lab})
			m.Add(runner.UsageRecord{Status: 200, Malformed: true, Time: lab})
			if err := m.WriteFiles(dir); err != nil {
				t.Fatal(err)
			}
			golden(t, "usage-"+usage+".json.golden", read(t, dir, "usage.json"))
			golden(t, "usage-"+usage+".jsonl.golden", read(t, dir, "usage.jsonl"))
			for _, name := range []string{"usage.json", "usage.jsonl"} {
				if info, err := dir.Stat(name); err != nil || info.Mode() != 0o600 {
					t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
				}
			}
			if m.Requests() != 4 {
				t.Errorf("Requests = %d", m.Requests())
			}
		})
	}
}

func TestMeterEmpty(t *testing.T) {
	dir := openRoot(t, t.TempDir())
	if err := NewMeter("messages").WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "usage.json"); got != `{"cost_usd":0,"per_model":{}}`+"\n" {
		t.Errorf("usage.json = %s", got)
	}
}

func TestMeterLimited(t *testing.T) {
	m := NewMeter("messages")
	check := func(want bool, until time.Time) {
		t.Helper()
		if reset, got := m.Limited(); got != want || !reset.Equal(until) {
			t.Errorf("Limited = %v, %v", reset, got)
		}
	}
	check(false, time.Time{})
	m.Add(runner.UsageRecord{Status: 429, Time: lab, RetryAfter: runner.Duration(time.Hour)})
	check(true, lab.Add(time.Hour))
	m.Add(runner.UsageRecord{Status: 529, Time: lab})
	check(true, time.Time{})
	m.Add(runner.UsageRecord{Status: 429, Time: lab, RetryAfter: runner.Duration(1000 * time.Hour)})
	check(true, time.Time{})
	m.Add(runner.UsageRecord{Status: 400, Time: lab})
	m.Add(request("a", "sonnet", backend.Tokens{Input: 1}))
	if reset, limited := m.Limited(); limited || m.Requests() != 1 {
		t.Errorf("Limited = %v, %v; Requests = %d", reset, limited, m.Requests())
	}
}

// TestMeterHostile checks that a server cannot make costs fall, and that invented models take no memory.
func TestMeterHostile(t *testing.T) {
	m := NewMeter("chat", Price{Model: "m", Input: 1})
	for i := range 1000 {
		m.Add(request("x", fmt.Sprint("model", i)+strings.Repeat("x", 1000), backend.Tokens{Input: 1}))
	}
	if n := len(m.PerModel()); n > mostModels+1 {
		t.Errorf("%d models", n)
	}
	m = NewMeter("chat", Price{Model: "m", Input: 1})
	m.Add(request("x", "m", backend.Tokens{Input: 1_000_000}))
	m.Add(request("x\n\x1b", "m", backend.Tokens{Input: -5_000_000, Output: -1}))
	if m.Cost() != 1 {
		t.Errorf("Cost = %v", m.Cost())
	}
	if lines := bytes.Count(m.lines, []byte("\n")); lines != 2 || bytes.Contains(m.lines, []byte{0x1b}) {
		t.Errorf("usage.jsonl:\n%s", m.lines)
	}
}

func TestFollowUsage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage")
	w, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	line := func(id string) []byte {
		b, _ := json.Marshal(request(id, "m", backend.Tokens{Input: 1}))
		return append(b, '\n')
	}
	w.Write(line("before"))
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := make(chan runner.UsageRecord, 10), make(chan error, 1)
	go func() { ended <- FollowUsage(ctx, r, func(u runner.UsageRecord) { got <- u }) }()
	want := func(id string, malformed bool) {
		t.Helper()
		select {
		case u := <-got:
			if u.RequestID != id || u.Malformed != malformed {
				t.Fatalf("got %+v, want %q", u, id)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no record %q", id)
		}
	}
	want("before", false)
	half := line("halves")
	w.Write(half[:20])
	w.Write(half[20:])
	want("halves", false)
	w.Write([]byte("no JSON\n"))
	want("", true)
	w.Write(append(bytes.Repeat([]byte("x"), longestRecord+1), '\n'))
	want("", true)
	w.Write(append(line("a"), line("last")...))
	want("a", false)
	want("last", false)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestFollowUsageEnd checks that the records before the end are read after it.
func TestFollowUsageEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage")
	b, _ := json.Marshal(request("a", "m", backend.Tokens{}))
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	if err := FollowUsage(ctx, f, func(runner.UsageRecord) { n++ }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

func TestMeterTogether(t *testing.T) {
	m, dir := NewMeter("messages"), openRoot(t, t.TempDir())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				m.Add(request("a", "haiku", backend.Tokens{Input: 1000}))
				if err := m.WriteFiles(dir); err != nil {
					t.Error(err)
				}
				m.Cost()
			}
		})
	}
	all.Wait()
	if m.Cost() != 0.16 || strings.Count(read(t, dir, "usage.jsonl"), "\n") != 160 {
		t.Errorf("Cost = %v", m.Cost())
	}
}
