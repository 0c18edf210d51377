package agents

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/runner"
	"demesne/session"
)

// request returns the record of one request at a fixed time.
func request(id, model string, t session.Tokens) runner.UsageRecord {
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
				r := request(fmt.Sprint("req_", i), model, session.Tokens{Input: 100, Output: 50, CacheCreation: 20, CacheRead: 30})
				r.Reasoning = 10
				m.Add(r)
				if err := m.WriteFiles(dir); err != nil {
					t.Fatal(err)
				}
			}
			m.Add(request("req_2", "another-model", session.Tokens{Input: 5}))
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
			if m.Requests() != 5 {
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
	m.Add(request("a", "sonnet", session.Tokens{Input: 1}))
	if reset, limited := m.Limited(); limited || m.Requests() != 1 {
		t.Errorf("Limited = %v, %v; Requests = %d", reset, limited, m.Requests())
	}
}

// TestMeterHostile checks that a server cannot make costs fall, and that invented models take no memory.
func TestMeterHostile(t *testing.T) {
	m := NewMeter("chat", Price{Model: "m", Input: 1})
	for i := range 1000 {
		m.Add(request("x", fmt.Sprint("model", i)+strings.Repeat("x", 1000), session.Tokens{Input: 1}))
	}
	if n := len(m.PerModel()); n > maxModels+1 {
		t.Errorf("%d models", n)
	}
	m = NewMeter("chat", Price{Model: "m", Input: 1})
	m.Add(request("x", "m", session.Tokens{Input: 1_000_000}))
	m.Add(request("x\n\x1b", "m", session.Tokens{Input: -5_000_000, Output: -1}))
	if m.Cost() != 1 {
		t.Errorf("Cost = %v", m.Cost())
	}
	if lines := bytes.Count(m.lines, []byte("\n")); lines != 2 || bytes.Contains(m.lines, []byte{0x1b}) {
		t.Errorf("usage.jsonl:\n%s", m.lines)
	}
}

func TestMeterTogether(t *testing.T) {
	m, dir := NewMeter("messages"), openRoot(t, t.TempDir())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				m.Add(request("a", "haiku", session.Tokens{Input: 1000}))
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

// TestMeterLost checks that a request with an answer that was cut, or without readable counts, costs at least an estimate.
func TestMeterLost(t *testing.T) {
	for name, c := range map[string]struct {
		r    runner.UsageRecord
		want session.Tokens
	}{
		"no head":          {runner.UsageRecord{Cut: true, Asked: "opus", Sent: 2001}, session.Tokens{Input: 1001, Output: usualOutput}},
		"bounded":          {runner.UsageRecord{Status: 200, Missing: true, Asked: "opus", Sent: 2001, MaxOutput: 7}, session.Tokens{Input: 1001, Output: 7}},
		"long":             {runner.UsageRecord{Status: 200, Cut: true, Asked: "opus", Sent: 10, Got: 1e6}, session.Tokens{Input: 5, Output: 1e6}},
		"with its input":   {runner.UsageRecord{Status: 200, Cut: true, Asked: "opus", Sent: 2000, Input: 30, CacheRead: 10, MaxOutput: 9}, session.Tokens{Input: 30, CacheRead: 10, Output: 9}},
		"an odd count":     {runner.UsageRecord{Status: 200, Malformed: true, Asked: "opus", Sent: 2000, Input: 30, MaxOutput: 9}, session.Tokens{Input: 1000, Output: 9}},
		"more than stated": {runner.UsageRecord{Status: 200, Malformed: true, Asked: "opus", Sent: 2, Input: 30, Output: 40, MaxOutput: 9}, session.Tokens{Input: 30, Output: 40}},
		"an error":         {runner.UsageRecord{Status: 500, Asked: "opus", Sent: 2000}, session.Tokens{}},
	} {
		m := NewMeter("messages")
		m.Add(c.r)
		if got := m.PerModel()["opus"]; got != c.want || m.Tokens() != all(c.want) || (m.Cost() > 0) != (c.want != session.Tokens{}) {
			t.Errorf("%s: %+v, cost %v, want %+v", name, got, m.Cost(), c.want)
		}
	}
}

// TestMeterNames checks that a request costs what the dearer of two names does, and that searches of the web cost.
func TestMeterNames(t *testing.T) {
	for _, names := range [][2]string{{"opus", "haiku"}, {"haiku", "opus"}, {"opus", "mystery"}, {"mystery", "opus"}, {"", "opus"}} {
		m := NewMeter("messages")
		m.Add(runner.UsageRecord{Status: 200, Model: names[0], Asked: names[1], Input: 1_000_000})
		if m.Cost() != 5 {
			t.Errorf("%q: %v", names, m.Cost())
		}
	}
	m := NewMeter("messages")
	m.Add(runner.UsageRecord{Status: 200, Model: "haiku", Input: 1, Searches: 100})
	if m.Cost() < 100*searchPrice {
		t.Errorf("cost %v", m.Cost())
	}
}
