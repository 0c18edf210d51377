package sandbox

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"demesne/runner"
)

// requested returns the requests of shapes that were just requested once.
func requested(keys ...string) (all []request) {
	for _, key := range keys {
		all = append(all, request{key, time.Now()})
	}
	return all
}

// begun adds the sandboxes that p lacks, as if they were being made.
func (p *Pool[S]) begun() {
	for sh := p.lacking(); sh != nil; sh = p.lacking() {
		sh.list = append(sh.list, &prepared[S]{shape: sh, made: make(chan struct{})})
	}
}

// fill adds the sandboxes that p lacks, as if they had been made.
func (p *Pool[S]) fill() {
	had := map[*prepared[S]]bool{}
	for _, sh := range p.shapes {
		for _, one := range sh.list {
			had[one] = true
		}
	}
	p.begun()
	for _, sh := range p.shapes {
		for _, one := range sh.list {
			if !had[one] {
				close(one.made)
			}
		}
	}
}

// String lists the shapes, each with its numbers of present and wanted sandboxes.
func (p *Pool[S]) String() string {
	var words []string
	for _, sh := range p.shapes {
		words = append(words, fmt.Sprintf("%s %d/%d", sh.key, len(sh.list), sh.want))
	}
	return strings.Join(words, ", ")
}

// TestSizeOf checks how many sandboxes are wanted after a request.
func TestSizeOf(t *testing.T) {
	for _, c := range []struct {
		name string
		d    demand
		want int
	}{
		{"the second request", demand{soon: true}, 1},
		{"a request alone", demand{}, 0},
		{"a request alone that finds one", demand{want: 1, ready: true}, 0},
		{"a request alone after a burst", demand{want: 4, left: 3, ready: true}, 3},
		{"a loop that finds one", demand{want: 1, ready: true, soon: true}, 1},
		{"a loop that waits", demand{want: 1, soon: true}, 2},
		{"a loop that waits all the same", demand{want: deep, soon: true}, deep},
		{"a loop after a burst", demand{want: 4, left: 3, ready: true, soon: true}, 3},
		{"a loop after a burst, none is left", demand{want: 4, ready: true, soon: true}, 3},
		{"three at once", demand{want: 3, soon: true, others: 2}, 3},
		{"four at once", demand{want: 3, soon: true, others: 3}, 4},
		{"twenty at once", demand{want: 3, soon: true, others: 19}, 4},
		{"twenty at once, one ready", demand{want: 3, ready: true, soon: true, others: 19}, 3},
	} {
		if got := sizeOf(c.d); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestPoolTake checks the size of the pool. A shape has one sandbox from its second request on, if that comes soon, and
// one more for a miss while there is room and use for it. The least recently requested shape makes room for another.
func TestPoolTake(t *testing.T) { synctest.Test(t, poolTake) }

func poolTake(t *testing.T) {
	for _, c := range []struct {
		name  string
		most  int
		takes string // shapes to take; f and m are calls of fill and begun, and p is a pause
		want  string
		gone  int // number of sandboxes that made room
	}{
		{"one request", 4, "a", "", 0},
		{"many shapes, one request each", 4, "abcde", "", 0},
		{"a miss", 4, "aa", "a 0/1", 0},
		{"a hit", 4, "aafa", "a 0/1", 0},
		{"one in the making", 4, "aama", "a 0/2", 0},
		{"two misses", 4, "aaa", "a 0/2", 0},
		{"many misses", 4, "aaaaaaa", "a 0/3", 0},
		{"many misses and little room", 1, "aaaaaaa", "a 0/1", 0},
		{"far apart", 4, "apapapa", "", 0},
		{"far apart, then soon", 4, "apaa", "a 0/1", 0},
		{"a hit long after", 4, "aafpa", "", 0},
		{"a hit long after, one is left", 4, "aaafpa", "a 1/1", 0},
		{"soon after a hit long after", 4, "aafpaa", "a 0/1", 0},
		{"two shapes", 4, "aabb", "a 0/1, b 0/1", 0},
		{"two shapes that alternate", 4, "abab", "a 0/1, b 0/1", 0},
		{"the last is last", 4, "aabba", "b 0/1, a 0/2", 0},
		{"alternating", 2, "abafbfafbfaf", "b 1/1, a 1/1", 0},
		{"often does not drive out rarely", 2, "aabbaaaa", "b 0/1, a 0/1", 0},
		{"one request drives out none", 2, "aabbfc", "a 1/1, b 1/1", 0},
		{"the oldest gives way", 2, "aabbfccf", "b 1/1, c 1/1", 1},
		{"one of many gives way", 3, "aaaafbbf", "a 2/2, b 1/1", 1},
		{"what is there not yet gives way too", 2, "aaabb", "a 0/1, b 0/1", 0},
		{"forgotten after many other shapes", 4, "aBCDEFGHIJKLMNOPQa", "", 0},
		{"none may be", 0, "abab", "", 0},
	} {
		p, gone := &Pool[int]{Max: c.most, Load: &Load{}}, 0
		for _, key := range strings.Split(c.takes, "") {
			switch key {
			case "f":
				p.fill()
				continue
			case "m":
				p.begun()
				continue
			case "p":
				time.Sleep(near + time.Second)
				continue
			}
			if _, unfit := p.take(key, runner.Spec{}); unfit != nil {
				gone++
			}
		}
		if got := fmt.Sprint(p); got != c.want || gone != c.gone {
			t.Errorf("%s: %s, %d gave way; want %s, %d", c.name, got, gone, c.want, c.gone)
		}
	}
}

// TestPoolOldestFirst checks that the oldest sandbox is taken first, even while it is being made.
func TestPoolOldestFirst(t *testing.T) {
	p := &Pool[int]{Max: 2, Load: &Load{}, seen: requested("a")}
	p.take("a", runner.Spec{})
	p.take("a", runner.Spec{})
	p.begun()
	first := p.shapes[0].list[0]
	if sp, _ := p.take("a", runner.Spec{}); sp != first || fmt.Sprint(p) != "a 1/2" {
		t.Errorf("%p of %v, not %p", sp, p, first)
	}
}

// TestPoolEnd checks that an expired sandbox, or one that cannot be made, lowers the demand until the next miss.
func TestPoolEnd(t *testing.T) {
	p := &Pool[int]{Max: 4, Load: &Load{}, seen: requested("a", "b")}
	p.take("a", runner.Spec{})
	p.take("a", runner.Spec{})
	p.take("b", runner.Spec{})
	p.begun()
	a, b := p.shapes[0], p.shapes[1]
	failed := b.list[0]
	failed.err = fmt.Errorf("no")
	p.finish(failed)
	if got := fmt.Sprint(p); got != "a 2/2" {
		t.Errorf("after one that cannot be made: %s", got)
	}
	old := a.list[0]
	old.err = fmt.Errorf("nothing to undo")
	close(old.made)
	p.expire(old)
	if got := fmt.Sprint(p); got != "a 1/1" || p.remove(old) {
		t.Errorf("after one that no caller took: %s", got)
	}
	p.expire(old)
	if got := fmt.Sprint(p); got != "a 1/1" {
		t.Errorf("after it was taken and its time came: %s", got)
	}
}

// makingTwo returns a pool for three sandboxes whose makers are at work. Each has sent to started, and then calls one.
func makingTwo(started chan struct{}, one func() (int, error)) *Pool[int] {
	p := &Pool[int]{Max: 3, Load: &Load{}, seen: requested("a"), PoolCallbacks: PoolCallbacks[int]{
		Make: func(runner.Spec) (int, error) {
			started <- struct{}{}
			return one()
		},
		Discard: func(int) {},
		Valid:   func(int) bool { return true },
		Serving: func() bool { return true },
		Scarce:  func() bool { return false },
	}}
	for range 3 {
		p.take("a", runner.Spec{})
		p.Refill()
	}
	<-started
	<-started
	return p
}

// TestPoolMakers checks that two sandboxes are made at once and that a third one waits for a maker.
func TestPoolMakers(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	var made atomic.Int32
	p := makingTwo(started, func() (int, error) {
		<-finish
		return int(made.Add(1)), nil
	})
	p.Refill()
	p.mu.Lock()
	if at := len(p.shapes[0].list); at != makers || p.pending != makers {
		t.Errorf("%d sandboxes in the making by %d makers, not %d", at, p.pending, makers)
	}
	p.mu.Unlock()
	finish <- struct{}{}
	<-started
	close(finish)
	p.Close()
	if n := made.Load(); n != 3 {
		t.Errorf("%d sandboxes were made, not 3", n)
	}
}

// TestPoolLoad checks that no sandbox is prepared while a caller waits for one.
func TestPoolLoad(t *testing.T) {
	var l Load
	first, second := l.Building(), l.Building()
	first()
	if !l.delays() {
		t.Error("a caller waits, and a sandbox is prepared")
	}
	second()
	if l.delays() {
		t.Error("no caller waits, and no sandbox is prepared")
	}
}

// TestPoolClosesWhileMaking checks that all makers may fail while the pool closes.
func TestPoolClosesWhileMaking(t *testing.T) {
	for range 50 {
		started, finish := make(chan struct{}), make(chan struct{})
		p := makingTwo(started, func() (int, error) {
			<-finish
			return 0, fmt.Errorf("no")
		})
		close(finish)
		p.Close()
	}
}
