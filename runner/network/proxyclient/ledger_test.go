package proxyclient

import (
	"fmt"
	"reflect"
	"testing"

	"demesne/runner"
)

func blocked(host string, times int) runner.Blocked {
	return runner.Blocked{Host: host, Port: 443, Reason: "no rule", Times: times}
}

// TestLedger: a ledger has one entry per denial and rule, with the largest amounts, and is taken only once.
func TestLedger(t *testing.T) {
	var l ledgers
	for _, times := range []int{1, 2, 4} {
		b := blocked("a.test", times)
		l.note(Note{Sandbox: "s", Denied: &b})
	}
	for _, x := range []Spent{{"r", 10, 1, 0}, {"r", 5, 2, 0}, {"q", 0, 0, 1}} {
		l.note(Note{Sandbox: "s", Spent: &x})
	}
	l.note(Note{Sandbox: "other"})
	got := l.take("s")
	want := ledger{denied: []runner.Blocked{blocked("a.test", 4)}, spent: []Spent{{"r", 10, 2, 0}, {"q", 0, 0, 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again := l.take("s"); again.denied != nil || again.spent != nil {
		t.Errorf("a second time: %+v", again)
	}
}

// TestLedgerBounded: a proxy that sends too many notes does not exhaust the runner's memory.
func TestLedgerBounded(t *testing.T) {
	var l ledgers
	for i := range 2 * mostNoted {
		b := blocked(fmt.Sprint(i), 1)
		l.note(Note{Sandbox: "s", Denied: &b, Spent: &Spent{Rule: b.Host}})
	}
	if got := l.take("s"); len(got.denied) != mostNoted || len(got.spent) != mostNoted {
		t.Errorf("%d denials, %d rules", len(got.denied), len(got.spent))
	}
}

// TestInherit covers three processes, two of which were killed. Reported counts are exact; otherwise the counts of
// the notes apply.
func TestInherit(t *testing.T) {
	o := &ProxySession{id: "s"}
	note := func(p *process, b runner.Blocked, bytes int64) {
		p.noted.note(Note{Sandbox: "s", Denied: &b, Spent: &Spent{Rule: "r", Bytes: bytes}})
	}
	first, second := &process{}, &process{}
	note(first, blocked("a.test", 2), 100)
	o.learn([]runner.Blocked{blocked("a.test", 3)})
	note(first, blocked("b.test", 1), 200)
	o.inherit(first)
	o.inherit(first)
	note(second, blocked("a.test", 1), 300)
	o.inherit(second)
	o.learn([]runner.Blocked{blocked("b.test", 1)})
	o.mu.Lock()
	defer o.mu.Unlock()
	if got, want := merge(o.before, o.now), []runner.Blocked{blocked("a.test", 4), blocked("b.test", 2)}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if want := []Spent{{Rule: "r", Bytes: 300}}; !reflect.DeepEqual(o.spent, want) {
		t.Errorf("%+v, want %+v", o.spent, want)
	}
}
