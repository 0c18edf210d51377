// Package trees keeps the processes that performed operations on files in sandboxes, for the next operations.
package trees

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/fileops"
	"demesne/session"
)

// Trees has the processes. A process serves one sandbox and one user, and one operation at a time. Operations at the same time
// have processes of their own, up to a bound: the others wait, because a sandbox has few processes.
type Trees struct {
	mu      sync.Mutex
	idle    []*kept // the one used last is the last
	busy    map[*kept]struct{}
	pausing map[string]int // calls of Paused, by sandbox
	queues  map[string]*queue
}

// queue has the operations of a sandbox that run or wait.
type queue struct {
	slots chan struct{} // full: others wait
	users int
}

// kept is a process that is kept.
type kept struct {
	*client.Tree
	sandbox string // id
	own     bool   // runs as the sandbox's own user
	user    runner.User
	born    time.Time
	expiry  *time.Timer
	stale   bool // is not to be kept
}

// Bounds of the kept processes, each of which uses about 1 MiB of its sandbox. To start one takes some times longer than an
// operation, so as many are kept as agents work at once.
const (
	maxTrees = 512
	atOnce   = 32 // operations in a sandbox, without those that watch a directory
	treeIdle = 30 * time.Second
	// treeAge bounds how long a process has the groups that its user had when it started. A new process also renews the
	// sandbox's TTL.
	treeAge = 5 * time.Minute
)

// Do performs an operation.
func (ts *Trees) Do(ctx context.Context, sb *session.Sandbox, user *runner.User, q fileops.Request, put func(io.Writer) error, take func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	if q.Op != fileops.OpWatch {
		end, err := ts.wait(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	k := &kept{sandbox: sb.ID, own: user == nil}
	if user != nil {
		k.user = *user
	}
	if old := ts.take(k); old != nil {
		a, err := old.Do(ctx, q, put, take)
		ts.keep(old)
		if !errors.Is(err, fileops.ErrUnsent) {
			return a, err
		}
	}
	ts.begin(k)
	var err error
	if k.Tree, err = sb.Tree(ctx, user, "/"); err != nil {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		delete(ts.busy, k)
		return nil, err
	}
	k.born = time.Now()
	a, err := k.Do(ctx, q, put, take)
	ts.keep(k)
	return a, err
}

// wait waits until an operation may begin in a sandbox. The caller calls end after it.
func (ts *Trees) wait(ctx context.Context, sandbox string) (end func(), err error) {
	ts.mu.Lock()
	if ts.queues == nil {
		ts.queues = map[string]*queue{}
	}
	q := ts.queues[sandbox]
	if q == nil {
		q = &queue{slots: make(chan struct{}, atOnce)}
		ts.queues[sandbox] = q
	}
	q.users++
	ts.mu.Unlock()
	leave := func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(ts.queues, sandbox)
		}
	}
	select {
	case q.slots <- struct{}{}:
		return func() { <-q.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// enough reports whether as many processes like k are kept as operations of its sandbox need. ts.mu is held.
func (ts *Trees) enough(k *kept) bool {
	n := 0
	for _, o := range ts.idle {
		if o.same(k) {
			n++
		}
	}
	q := ts.queues[k.sandbox]
	return n > 0 && (q == nil || n >= min(q.users, atOnce))
}

// begin records that a process performs an operation, or is being started for one.
func (ts *Trees) begin(k *kept) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.use(k)
}

// use is begin, with ts.mu held.
func (ts *Trees) use(k *kept) {
	if ts.busy == nil {
		ts.busy = map[*kept]struct{}{}
	}
	ts.busy[k] = struct{}{}
}

// same reports whether two processes serve the same user of the same sandbox.
func (k *kept) same(o *kept) bool {
	return k.sandbox == o.sandbox && k.own == o.own && k.user == o.user
}

// take returns a kept process like k, or nil.
func (ts *Trees) take(k *kept) *kept {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	at := slices.IndexFunc(ts.idle, k.same)
	if at < 0 {
		return nil
	}
	old := ts.idle[at]
	ts.remove(at)
	ts.use(old)
	return old
}

// remove removes a process from the list. ts.mu is held.
func (ts *Trees) remove(at int) {
	ts.idle[at].expiry.Stop()
	ts.idle = slices.Delete(ts.idle, at, at+1)
}

// keep keeps a process, or ends it.
func (ts *Trees) keep(k *kept) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.busy, k)
	if !k.Usable() || k.stale || ts.pausing[k.sandbox] > 0 || time.Since(k.born) > treeAge || ts.enough(k) {
		go k.Close()
		return
	}
	if len(ts.idle) >= maxTrees {
		go ts.idle[0].Close()
		ts.remove(0)
	}
	k.expiry = time.AfterFunc(treeIdle, func() { ts.end(func(o *kept) bool { return o == k }) })
	ts.idle = append(ts.idle, k)
}

// Paused calls pause, which stops the processes of a sandbox. None of those is kept: a stopped one would not answer, and no
// command would resume it. That holds too for a process whose operation ends meanwhile or has just ended.
func (ts *Trees) Paused(sandbox string, pause func() error) error {
	ts.mu.Lock()
	if ts.pausing == nil {
		ts.pausing = map[string]int{}
	}
	ts.pausing[sandbox]++
	ts.mu.Unlock()
	ts.Drop(sandbox)
	err := pause()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for k := range ts.busy {
		k.stale = k.stale || k.sandbox == sandbox
	}
	if ts.pausing[sandbox]--; ts.pausing[sandbox] == 0 {
		delete(ts.pausing, sandbox)
	}
	return err
}

// Drop ends the kept processes of a sandbox.
func (ts *Trees) Drop(sandbox string) {
	ts.end(func(k *kept) bool { return k.sandbox == sandbox })
}

// end ends kept processes, and waits for that.
func (ts *Trees) end(which func(*kept) bool) {
	ts.mu.Lock()
	var gone []*kept
	for i := len(ts.idle) - 1; i >= 0; i-- {
		if which(ts.idle[i]) {
			gone = append(gone, ts.idle[i])
			ts.remove(i)
		}
	}
	ts.mu.Unlock()
	for _, k := range gone {
		k.Close()
	}
}
