package proxy

import (
	"net"
	"reflect"
	"testing"

	"demesne/proxy/policy"
)

// TestBudgetTold checks that a budget never reports less than is forwarded, and that a proxy which takes over
// starts from it.
func TestBudgetTold(t *testing.T) {
	word, _ := policy.ParseRule("good.test")
	rule := word.Limited(policy.Budget{Bytes: 1600, Connections: 3, Requests: 9})
	var told Spent
	calls := 0
	s := budgets{tell: func(x Spent) { told = x; calls++ }}
	s.charge(rule, false)
	if want := (Spent{Rule: "good.test", Connections: 1}); told != want {
		t.Errorf("%+v, want %+v", told, want)
	}
	b := s.of(rule)
	for range 50 {
		b.some(10)
		if told.Bytes < b.bytes.Load() {
			t.Fatalf("%d bytes went on, %d were told", b.bytes.Load(), told.Bytes)
		}
	}
	if calls > 8 || told.Bytes > 600 {
		t.Errorf("%d calls, %+v", calls, told)
	}
	next := budgets{before: []Spent{{Rule: "other.test", Bytes: 9}, told}}
	if got, want := next.begin(rule).spent(1), (Spent{Rule: "good.test", Bytes: 1, Connections: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	next.charge(rule, false)
	next.charge(rule, false)
	if why := next.charge(rule, false); why == "" {
		t.Error("a fourth connection")
	}
	b.some(10000)
	last := budgets{before: []Spent{told}}
	if why := last.charge(rule, true); why == "" || told.Bytes != 1600 {
		t.Errorf("after all of it: %q, %+v", why, told)
	}
}

// TestDenialsTold checks that denials are reported as their number doubles.
func TestDenialsTold(t *testing.T) {
	var told []Blocked
	r := newRig(t, Config{Denied: func(b Blocked) { told = append(told, b) }})
	for range 5 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"))
		c.Read(make([]byte, 100))
		c.Close()
		r.idle()
	}
	var times []int
	for _, b := range told {
		times = append(times, b.Times)
		if b.Host != "evil.test" || b.Port != 443 {
			t.Errorf("%+v", b)
		}
	}
	if !reflect.DeepEqual(times, []int{1, 2, 4}) {
		t.Errorf("told %v", times)
	}
}
