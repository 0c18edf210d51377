package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"demesne/proxy/policy"
)

// written returns the bytes this process wrote by write(2) and similar calls. splice(2) does not count.
func written(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		fmt.Sscanf(line, "wchar: %d", &n)
	}
	return n
}

// TestSplice checks that the kernel moves a tunnel's bytes. The server and the client in this process write them
// once; the proxy must not write them again.
func TestSplice(t *testing.T) {
	const size = 64 << 20
	for _, limit := range []int64{0, 1 << 40} {
		l, err := net.Listen("tcp", "8.0.0.2:7")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				io.Copy(c, io.LimitReader(zeros{}, size))
				c.Close()
			}
		}()
		rule, _ := policy.ParseRule("good.test:*")
		r := newRig(t, Config{Policy: policy.Policy{}.Allow(rule.Limited(policy.Budget{Bytes: limit}))}, "good.test")
		before := written(t)
		c, _, _ := r.connect("good.test:7")
		if n, err := io.Copy(io.Discard, c); n != size {
			t.Fatal(n, err)
		}
		if n := written(t) - before; n < size || n > size+size/4 {
			t.Errorf("budget %d: %d bytes were written for %d", limit, n, size)
		}
		l.Close()
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestBudgetConcurrent(t *testing.T) {
	b := &budget{limit: policy.Budget{Bytes: 1000}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for range 8 {
		wg.Go(func() {
			for {
				n := b.some(7)
				if n == 0 {
					return
				}
				mu.Lock()
				total += n
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if total != 1000 || !b.exhausted() {
		t.Errorf("%d of 1000, exhausted %v", total, b.exhausted())
	}
}

func TestJournal(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(Config{Log: &out, Sandbox: "s", Limits: Limits{Log: 16 << 10}})
	deny := func(i int) {
		j.write(Record{Via: "dns", Host: fmt.Sprintf("n%d.test", i)}.Decided(policy.Decision{Reason: "no rule"}))
	}
	for i := range 1000 {
		deny(i)
	}
	deny(0)
	j.finish()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 4 || out.Len() > 4<<10 || !strings.Contains(lines[0], `"host":"n0.test","verdict":"denied","reason":"no rule"`) ||
		!strings.Contains(lines[len(lines)-1], "further denials: the log has no room for more kinds") {
		t.Errorf("%s", out.String())
	}
	all := j.denials()
	if n := len(all); n != 257 || all[0].Times != 2 || all[256] != (Blocked{Host: "*", Reason: "further denials: more than 256 kinds", Times: 744}) {
		t.Errorf("%d denials are kept, %+v … %+v", n, all[0], all[n-1])
	}
}

// TestBudgetBothWays checks that both directions share a budget, and that not one byte more goes through.
func TestBudgetBothWays(t *testing.T) {
	echo(t, "8.0.0.2:7")
	rule, _ := policy.ParseRule("good.test:*")
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(rule.Limited(policy.Budget{Bytes: 1000}))}, "good.test")
	c, _, _ := r.connect("good.test:7")
	moved, block := 0, make([]byte, 100)
	for {
		if _, err := c.Write(block); err != nil {
			break
		}
		moved += len(block)
		n, err := io.ReadFull(c, block)
		if moved += n; err != nil {
			break
		}
	}
	if moved < 1000 || moved > 1100 { // the last block reached only the proxy
		t.Errorf("%d bytes were moved", moved)
	}
	r.idle()
	r.proxy.Close()
	for _, rec := range r.records(1) {
		if rec.In+rec.Out != 1000 || rec.Error != "cut: the rule's byte budget is used up" {
			t.Errorf("%+v", rec)
		}
	}
	want := []Blocked{{Host: "good.test", Port: 7, Reason: `rule "good.test:*": its budget of 1000 bytes is used up`, Times: 1}}
	if got := r.proxy.Blocked(); !slices.Equal(got, want) {
		t.Errorf("denied: %+v, want %+v", got, want)
	}
}
