package rest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

// TestListPages walks lists page by page, while sandboxes are removed and made: the others appear exactly once, in order.
func TestListPages(t *testing.T) {
	one := func(n int, name string, namespace string, state runner.State) runner.Info {
		front := runner.FrontendCLI.In(namespace)
		created := time.Unix(int64(n/2), 0) // two of each second: the ids decide
		return runner.Info{ID: fmt.Sprintf("id%02d", n), Name: name, State: state, Created: created, Spec: runner.Spec{Lifetime: runner.Persistent, Frontend: front}}
	}
	var all []runner.Info
	for n := range 9 {
		all = append(all, one(n, fmt.Sprintf("web-%d", n), []string{"", "alice"}[n%2], []runner.State{runner.Running, runner.Stopped, runner.Snapshot}[n%3]))
	}
	step := one(50, "web-step", "", runner.Running)
	step.Spec.Rootfs = &runner.Rootfs{Aside: true}
	all = append(all, runner.Info{ID: "once", State: runner.Running}, step)
	for _, c := range []struct {
		in   listInput
		want string
	}{
		{listInput{}, "id08 id07 id06 id05 id04 id03 id02 id01 id00"},
		{listInput{Order: "oldest"}, "id00 id01 id02 id03 id04 id05 id06 id07 id08"},
		{listInput{State: "running"}, "id06 id03 id00"},
		{listInput{State: "snapshot", Order: "oldest"}, "id02 id05 id08"},
		{listInput{Namespace: "alice"}, "id07 id05 id03 id01"},
		{listInput{Namespace: "bob"}, ""},
		{listInput{Name: "web-7"}, "id07"},
		{listInput{Name: "eb"}, ""},
		{listInput{Name: "web-", State: "stopped", Namespace: "alice"}, "id07 id01"},
	} {
		for limit := 1; limit < 11; limit++ {
			c.in.Limit = limit
			var got []string
			now, cursor := slices.Clone(all), ""
			for n := 0; ; n++ {
				after, err := placeOf(cursor)
				if err != nil {
					t.Fatal(err)
				}
				found, next := c.in.page(now, after)
				if len(found) > limit {
					t.Fatalf("%d of %d", len(found), limit)
				}
				for _, i := range found {
					got = append(got, i.ID)
				}
				if cursor = next; cursor == "" {
					break
				}
				last := found[len(found)-1].ID // the sandbox of the cursor is removed, and one more is made outside of the rest
				now = slices.DeleteFunc(now, func(i runner.Info) bool { return i.ID == last })
				made := one(100+n, "web-new", "alice", runner.Running)
				if c.in.Order == "oldest" {
					made.Created = time.Unix(-1, int64(n))
				}
				now = append(now, made)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%+v: %q, want %q", c.in, got, c.want)
			}
		}
	}
}

// TestListCursor checks cursors that no answer had.
func TestListCursor(t *testing.T) {
	for _, wrong := range []string{"x", "!", "eA", "MQ", "IDE", strings.Repeat("A", 200)} {
		if p, err := placeOf(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, p)
		}
	}
	at := place{time.Unix(1700000000, 123456789), "abc def"}
	if p, err := placeOf(at.cursor()); err != nil || p.compare(at) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestRemoveTwice checks that the later one of two calls that remove a sandbox at once is answered with the caller's word.
func TestRemoveTwice(t *testing.T) {
	r := newRig(t)
	id := r.make("web").info.ID
	r.fake.first = func() { // the other call
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		delete(r.fake.all, id)
	}
	r.steps([]step{{"DELETE /v1/sandboxes/web", "", 404, `"message":"find sandbox \"web\": no such sandbox"`}})
}
