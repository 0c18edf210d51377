package proxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"demesne/proxy/policy"
)

// operator is an Approver that answers by the name and counts its calls.
type operator struct {
	proxy atomic.Pointer[Proxy]
	base  policy.Policy
	yes   string
	asked atomic.Int32
	hold  chan struct{} // nil: answers at once
}

func (o *operator) approve(ctx context.Context, name policy.Name, port uint16) {
	o.asked.Add(1)
	if o.hold != nil {
		select {
		case <-o.hold:
		case <-ctx.Done():
			return
		}
	}
	if at := fmt.Sprintf("%s:%d", name, port); at == o.yes {
		rule, _ := policy.ParseRule(at)
		o.proxy.Load().SetPolicy(o.base.Allow(rule))
	}
}

func TestApprove(t *testing.T) {
	echo(t, "8.0.0.2:7")
	o := &operator{yes: "ask.test:7", hold: make(chan struct{})}
	r := newRig(t, Config{Approve: o.approve, Policy: policy.Policy{}.Deny(allow(t, "never.test").Allowed()...)}, "ask.test")
	o.proxy.Store(r.proxy)
	var wg sync.WaitGroup
	for range 10 { // one question for all ten connections
		wg.Go(func() {
			if _, resp, body := r.connect("ask.test:7"); resp.StatusCode != 200 {
				t.Error(resp.Status, body)
			}
		})
	}
	o.hold <- struct{}{}
	close(o.hold)
	wg.Wait()
	before := o.asked.Load()
	for target, want := range map[string]int{"ask.test:7": 200, "ask.test:8": 403, "no.test:7": 403, "never.test:7": 403, "8.0.0.2:7": 403} {
		if _, resp, body := r.connect(target); resp.StatusCode != want {
			t.Error(target, resp.Status, body)
		}
	}
	// Questions are asked only for targets without a rule: no.test, ask.test:8, and never.test, as this
	// operator's policy dropped the deny rule.
	if n := o.asked.Load() - before; n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// TestApproveByName checks that a program which uses DNS gets an address, and that the question is about the
// connection. Before the answer no query goes to the host's resolver.
func TestApproveByName(t *testing.T) {
	echo(t, "8.0.0.2:7")
	o := &operator{yes: "ask.test:7"}
	r := newRig(t, Config{Approve: o.approve}, "ask.test")
	o.proxy.Store(r.proxy)
	if r.address("secret.evil.test"); o.asked.Load() != 0 || len(r.world.names()) != 0 {
		t.Error("a DNS query alone asked a question")
	}
	c := r.named("ask.test", 7)
	fmt.Fprint(c, "x")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	c.Close()
	verdicts := map[string][]string{}
	for _, rec := range r.logged() {
		verdicts[rec.Via+" "+rec.Host] = append(verdicts[rec.Via+" "+rec.Host], rec.Verdict)
	}
	for about, want := range map[string]string{"dns secret.evil.test": Pending, "dns ask.test": Pending, "name ask.test": Allowed} {
		if got := verdicts[about]; len(got) == 0 || slices.ContainsFunc(got, func(v string) bool { return v != want }) {
			t.Errorf("%s: %q, want %q", about, got, want)
		}
	}
}

// TestApproveFlood checks that questions about made-up names do not pile up before the operator.
func TestApproveFlood(t *testing.T) {
	o := &operator{hold: make(chan struct{})}
	r := newRig(t, Config{Approve: o.approve})
	o.proxy.Store(r.proxy)
	var conns []net.Conn
	for i := range maxAsking {
		c := r.dial(r.addr)
		fmt.Fprintf(c, "CONNECT n%d.test:1 HTTP/1.1\r\n\r\n", i)
		conns = append(conns, c)
	}
	for o.asked.Load() < maxAsking {
		time.Sleep(time.Millisecond) // the other goroutines are still on their way
	}
	if _, resp, _ := r.connect("one-more.test:1"); resp.StatusCode != 403 || o.asked.Load() != maxAsking {
		t.Errorf("%s, %d asked", resp.Status, o.asked.Load())
	}
	r.proxy.Close() // unblocks the waiting connections
	for _, c := range conns {
		c.Read(make([]byte, 1))
	}
}
