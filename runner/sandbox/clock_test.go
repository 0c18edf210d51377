package sandbox

import (
	"testing"
	"time"

	"demesne/runner"
)

// client is a caller that gets no messages.
type client struct {
	Caller
	left bool
}

func (c client) Left() bool { return c.left }

// TestBound checks that a sandbox known only to its maker ends soon after the maker does, and not before. One that
// others know lasts its full time.
func TestBound(t *testing.T) {
	hour := runner.Duration(time.Hour)
	for _, row := range []struct {
		name        string
		ttl         runner.Duration
		maker, gone bool
		do          func(*Sandbox)
		want        time.Duration
		over        bool // it ends when its timer fires
	}{
		{name: "known", ttl: hour, want: time.Hour, over: true},
		{name: "known to its maker", ttl: hour, maker: true, want: unopened},
		{name: "whose maker died", ttl: hour, maker: true, gone: true, want: unopened, over: true},
		{name: "with a shorter time", ttl: runner.Duration(time.Second), maker: true, want: time.Second, over: true},
		{name: "opened", ttl: hour, maker: true, gone: true, do: func(s *Sandbox) { s.Open() }, want: time.Hour, over: true},
		{name: "used", ttl: hour, maker: true, gone: true, do: func(s *Sandbox) { s.lease.used() }, want: time.Hour, over: true},
	} {
		s := New(Env{Machine: &Machine{}}, "s", runner.Spec{Lifetime: runner.Persistent, TTL: row.ttl})
		s.receipts.now = &runner.Receipt{}
		s.Made(nil)
		if row.maker {
			s.lease.maker = client{left: row.gone}
		}
		s.lease.renew()
		if row.do != nil {
			row.do(s)
		}
		left := time.Until(s.lease.ends)
		if d := row.want - left; d < 0 || d > 10*time.Second {
			t.Errorf("one %s ends in %v, want %v", row.name, left, row.want)
		}
		s.lease.ends = s.lease.ends.Add(-row.want) // let the time pass
		if s.lease.expires = s.lease.expires.Add(-row.want); s.lease.due() > 0 == row.over {
			t.Errorf("one %s: %v are left", row.name, s.lease.due())
		}
	}
}

func TestExpiry(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := runner.Duration(time.Hour)
	for _, row := range []struct {
		name     string
		ttl, age runner.Duration
		used     time.Duration
		want     time.Duration // since its creation
	}{
		{"default", 0, 0, 0, 48 * time.Hour},
		{"unused", hour, 0, 0, time.Hour},
		{"used", hour, 0, 5 * time.Hour, 6 * time.Hour},
		{"age", hour, 2 * hour, 90 * time.Minute, 2 * time.Hour},
		{"age over", hour, 2 * hour, 5 * time.Hour, 2 * time.Hour},
		{"age far away", hour, 100 * hour, 0, time.Hour},
	} {
		got := expiry(runner.Spec{TTL: row.ttl, MaxAge: row.age}, made, made.Add(row.used))
		if got.Sub(made) != row.want {
			t.Errorf("%s: after %v, want %v", row.name, got.Sub(made), row.want)
		}
	}
}
