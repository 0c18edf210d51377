package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"demesne/proxy/policy"
)

// operator answers by the name, and counts.
type operator struct {
	proxy atomic.Pointer[Proxy]
	base  policy.Policy
	yes   string
	asked atomic.Int32
	hold  chan struct{} // nil: at once
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
	for range 10 { // one question, however many wait for the answer
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
	// Only what no rule is about is asked about: no.test, another port of ask.test, and never.test since
	// this operator's policy forgot about it.
	if n := o.asked.Load() - before; n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// TestApproveByName: a program that uses DNS gets an address, and the question is about the
// connection. No name goes to the host's resolver before.
func TestApproveByName(t *testing.T) {
	echo(t, "8.0.0.2:7")
	o := &operator{yes: "ask.test:7"}
	r := newRig(t, Config{Approve: o.approve}, "ask.test")
	o.proxy.Store(r.proxy)
	if r.address("secret.evil.test"); o.asked.Load() != 0 || len(r.world.names()) != 0 {
		t.Error("DNS alone asked somebody")
	}
	c := r.named("ask.test", 7)
	fmt.Fprint(c, "x")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestApproveFlood: names that somebody makes up do not pile up before the operator.
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
		time.Sleep(time.Millisecond) // each is a goroutine that is on its way
	}
	if _, resp, _ := r.connect("one-more.test:1"); resp.StatusCode != 403 || o.asked.Load() != maxAsking {
		t.Errorf("%s, %d asked", resp.Status, o.asked.Load())
	}
	r.proxy.Close() // ends the waiting
	for _, c := range conns {
		c.Read(make([]byte, 1))
	}
}
