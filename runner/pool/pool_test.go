package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

// fill adds the sandboxes that p lacks, as if they had been made.
func (p *Pool[S]) fill() {
	for sh := p.lacking(); sh != nil; sh = p.lacking() {
		sh.list = append(sh.list, &prepared[S]{shape: sh, made: make(chan struct{})})
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

// TestPoolTake checks the size of the pool. Each requested shape has one sandbox, and one more for each miss
// while there is room. The least recently requested shape makes room for another.
func TestPoolTake(t *testing.T) {
	for _, c := range []struct {
		name  string
		most  int
		takes string // shapes to take; f is no shape but a call of fill
		want  string
		gone  int // number of sandboxes that made room
	}{
		{"a miss", 4, "a", "a 0/1", 0},
		{"a hit", 4, "afa", "a 0/1", 0},
		{"two misses", 4, "aa", "a 0/2", 0},
		{"many misses", 2, "aaaaaa", "a 0/2", 0},
		{"two shapes", 4, "ab", "a 0/1, b 0/1", 0},
		{"the last is last", 4, "aba", "b 0/1, a 0/2", 0},
		{"alternating", 2, "afbfafbfaf", "b 1/1, a 1/1", 0},
		{"often does not drive out rarely", 2, "abaaaa", "b 0/1, a 0/1", 0},
		{"the oldest gives way", 2, "abfcf", "b 1/1, c 1/1", 1},
		{"one of many gives way", 3, "aaafbf", "a 2/2, b 1/1", 1},
		{"what is there not yet gives way too", 2, "aab", "a 0/1, b 0/1", 0},
		{"none may be", 0, "abab", "", 0},
	} {
		p, gone := &Pool[int]{Max: c.most}, 0
		for _, key := range strings.Split(c.takes, "") {
			if key == "f" {
				p.fill()
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
	p := &Pool[int]{Max: 2}
	p.take("a", runner.Spec{})
	p.take("a", runner.Spec{})
	p.fill()
	first := p.shapes[0].list[0]
	if sp, _ := p.take("a", runner.Spec{}); sp != first || fmt.Sprint(p) != "a 1/2" {
		t.Errorf("%p of %v, not %p", sp, p, first)
	}
}

// TestPoolEnd checks that an expired sandbox, or one that cannot be made, lowers the demand until the next miss.
func TestPoolEnd(t *testing.T) {
	p := &Pool[int]{Max: 4}
	p.take("a", runner.Spec{})
	p.take("a", runner.Spec{})
	p.take("b", runner.Spec{})
	p.fill()
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

// TestPoolLoad checks that no sandbox is prepared while a caller waits, but that commands cannot postpone
// it forever.
func TestPoolLoad(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name            string
		busy            int
		command, wanted time.Duration // time since then
		want            bool
	}{
		{"nothing goes on", 0, time.Hour, delay, false},
		{"a sandbox is being made", 1, time.Hour, delay, true},
		{"a command was just started", 0, delay / 2, delay, true},
		{"a command was started a while ago", 0, delay, delay, false},
		{"commands come all the time", 0, 0, patience, false},
		{"commands come all the time, and sandboxes", 1, 0, patience, true},
	} {
		l := &Load{busy: c.busy, command: now.Add(-c.command)}
		if got := l.delays(now, now.Add(-c.wanted)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
