package code

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"demesne/kernels"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

func TestDeathOf(t *testing.T) {
	for _, c := range []struct {
		r    *runner.Result
		want string
	}{
		{nil, "the sandbox is gone"},
		{&runner.Result{Reason: runner.Lost, ExitCode: 125}, "the sandbox is gone"},
		{&runner.Result{Reason: runner.OOM, ExitCode: 137}, "out of memory"},
		{&runner.Result{Reason: runner.Signaled, ExitCode: 137, Signal: 9}, "killed (SIGKILL, 137)"},
		{&runner.Result{Reason: runner.Signaled, ExitCode: 139, Signal: 11}, "crashed: segmentation fault (SIGSEGV, 139)"},
		{&runner.Result{Reason: runner.Signaled, ExitCode: 143, Signal: 15}, "terminated (SIGTERM, 143)"},
		{&runner.Result{Reason: runner.Signaled, ExitCode: 136, Signal: 8}, "ended by signal 8 (136)"},
		{&runner.Result{Reason: runner.Exited, ExitCode: 7}, "exited with status 7"},
		{&runner.Result{Reason: runner.DiskFull, ExitCode: 137}, "the disk limit"},
		{&runner.Result{Reason: runner.PIDLimit, ExitCode: 137}, "the limit on processes"},
	} {
		d := deathOf(c.r)
		if d.Error() != "CONTAINER_DIED: "+c.want || !strings.Contains(d.Hint(), "make a new session") {
			t.Errorf("%+v: %q, %q", c.r, d.Error(), d.Hint())
		}
	}
}

func TestLimitsFrom(t *testing.T) {
	vars := map[string]string{}
	get := func(name string) string { return vars[name] }
	if l, err := LimitsFrom(get); err != nil || l != (Limits{Prepared: 2}) {
		t.Errorf("%+v, %v", l, err)
	}
	vars = map[string]string{"DEMESNE_MAX_TOTAL_MEMORY": "1g"}
	if l, err := LimitsFrom(get); err != nil || l.Prepared != 0 {
		t.Errorf("with a bound of all sandboxes: %+v, %v", l, err)
	}
	vars = map[string]string{varSessions: "5", varPerCaller: "3", varIdle: "1800", varAge: "2h", varPrepared: "0"}
	if l, err := LimitsFrom(get); err != nil || l != (Limits{Sessions: 5, PerCaller: 3, Idle: 30 * time.Minute, Age: 2 * time.Hour}) {
		t.Errorf("%+v, %v", l, err)
	}
	for name, value := range map[string]string{varSessions: "x", varPerCaller: "-1", varIdle: "soon", varAge: "-5", varPrepared: "1.5"} {
		vars = map[string]string{name: value}
		if _, err := LimitsFrom(get); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

// TestShapes checks which requests may share a prepared session.
func TestShapes(t *testing.T) {
	s := session.New(session.Options{Getenv: func(string) string { return "" }})
	word := func(c session.CreateOptions) string {
		w, ok := c.Shape(context.Background(), s)
		if !ok {
			return "none"
		}
		return w
	}
	plain := word(session.CreateOptions{})
	if plain == "none" || plain != word(session.CreateOptions{}) {
		t.Error("equal options have no common shape")
	}
	other := map[string]session.CreateOptions{
		"memory": {Spec: runner.Spec{Limits: runner.Limits{Memory: 1 << 30}}},
		"allow":  {Egress: session.Egress{Allow: []string{"a.test:443"}}},
		"user":   {User: "nobody"},
		"env":    {Spec: runner.Spec{Defaults: runner.Defaults{Env: []string{"A=b"}}}},
	}
	for name, c := range other {
		if w := word(c); w == plain || w == "none" {
			t.Errorf("%s: %s", name, w)
		}
	}
	for name, c := range map[string]session.CreateOptions{
		"key": {Spec: runner.Spec{Key: "k"}}, "name": {Spec: runner.Spec{Name: "n"}}, "out": {Out: "/o"},
		"input": {Spec: runner.Spec{Inputs: []runner.Input{{Path: "/x", Name: "x"}}}}, "workspace": {Spec: runner.Spec{Workspace: "/w"}},
		"route": {Egress: session.Egress{Routes: []runner.Route{{Port: 1}}}},
	} {
		if w := word(c); w != "none" {
			t.Errorf("%s: has the shape %s", name, w)
		}
	}
}

func TestDeathIsDead(t *testing.T) {
	var d *Death
	if err := error(stuck()); !errors.As(err, &d) || !strings.HasPrefix(err.Error(), "CONTAINER_DIED: timed out") {
		t.Error(err)
	}
}

// TestPlan checks that a later need does not delay an earlier one, and that the dead are looked for without any.
func TestPlan(t *testing.T) {
	s := NewStore(session.New(session.Options{}), Limits{})
	defer s.Close()
	now := time.Now()
	for _, c := range []struct{ at, want time.Time }{
		{time.Time{}, now.Add(deadGrace)},
		{now.Add(time.Minute), now.Add(time.Minute)},
		{now.Add(time.Hour), now.Add(time.Minute)},
		{time.Time{}, now.Add(time.Minute)},
		{now.Add(time.Second), now.Add(time.Second)},
	} {
		s.mu.Lock()
		s.plan(c.at)
		if d := s.next.Sub(c.want).Abs(); d > time.Second/2 {
			t.Errorf("planned %s from what was wanted", d)
		}
		s.mu.Unlock()
	}
}

// TestTextual tells values of IRkernel, which it displays, from figures and pages.
func TestTextual(t *testing.T) {
	text := json.RawMessage(`"[1] 42"`)
	marked := kernels.Bundle{"text/plain": text, "text/html": json.RawMessage(`"42"`), "text/markdown": json.RawMessage(`"42"`), "text/latex": json.RawMessage(`"42"`)}
	plot := kernels.Bundle{"text/plain": json.RawMessage(`"plot without title"`), "image/png": json.RawMessage(`"iVBORw0KGgo="`)}
	widget := kernels.Bundle{"text/plain": json.RawMessage(`"HTML widgets cannot be represented in plain text (need html)"`), "text/html": json.RawMessage(`"<script></script>"`)}
	for _, c := range []struct {
		b    kernels.Bundle
		want bool
	}{{marked, true}, {kernels.Bundle{"text/plain": text}, true}, {plot, false}, {widget, false}, {kernels.Bundle{"text/html": text}, false}, {nil, false}} {
		if got := textual(c.b); got != c.want {
			t.Errorf("%s: %v", c.b, got)
		}
	}
}

// FuzzLiteral checks that a value's literal is ASCII, and means the same JSON.
func FuzzLiteral(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\u0001"]}`, `"é\u2028😀</script>"`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want, got any
		if json.Unmarshal([]byte(s), &want) != nil {
			return
		}
		quoted := literal([]byte(s))
		var inner string
		if strings.IndexFunc(quoted, func(r rune) bool { return r >= 0x80 || r < ' ' }) >= 0 || json.Unmarshal([]byte(quoted), &inner) != nil || json.Unmarshal([]byte(inner), &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %s", s, quoted)
		}
	})
}

// TestYieldsEarly checks that a new session also gets the room of a prepared one that is being made.
func TestYieldsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		shape := func(_ context.Context, c session.CreateOptions) (string, bool) { return c.User, true }
		p := newPrepared(Limits{Prepared: 1}, shape, func(context.Context, Options) (*Session, error) {
			full.Store(true)
			time.Sleep(time.Second)
			full.Store(false)
			return nil, errors.New("not made")
		})
		defer p.close()
		take := func(user string) {
			t.Helper()
			_, err := p.take(t.Context(), Options{Create: session.CreateOptions{User: user}}, func() (*Session, error) {
				if full.Load() {
					return nil, ipc.Errorf(ipc.CodeTooMany, "no room")
				}
				return &Session{}, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		take("a")
		time.Sleep(2 * aheadDelay)
		take("b")
	})
}
