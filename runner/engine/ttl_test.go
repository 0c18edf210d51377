package engine

import (
	"testing"
	"time"

	"demesne/runner"
)

// TestBound checks that a sandbox known only to its maker ends soon after the maker does, and not before. One that
// others know lasts its full time.
func TestBound(t *testing.T) {
	hour := runner.Duration(time.Hour)
	for _, row := range []struct {
		name        string
		ttl         runner.Duration
		maker, gone bool
		do          func(*sandbox)
		want        time.Duration
		over        bool // it ends when its timer fires
	}{
		{name: "known", ttl: hour, want: time.Hour, over: true},
		{name: "known to its maker", ttl: hour, maker: true, want: untold},
		{name: "whose maker died", ttl: hour, maker: true, gone: true, want: untold, over: true},
		{name: "with a shorter time", ttl: runner.Duration(time.Second), maker: true, want: time.Second, over: true},
		{name: "opened", ttl: hour, maker: true, gone: true, do: func(s *sandbox) { s.open() }, want: time.Hour, over: true},
		{name: "used", ttl: hour, maker: true, gone: true, do: func(s *sandbox) { s.used() }, want: time.Hour, over: true},
	} {
		s := (&Engine{}).newSandbox("s", runner.Spec{Lifetime: runner.Persistent, TTL: row.ttl})
		s.receipt = &runner.Receipt{}
		close(s.built)
		if row.maker {
			s.life.maker = &caller{gone: row.gone}
		}
		s.renew()
		if row.do != nil {
			row.do(s)
		}
		left := time.Until(s.life.ends)
		if d := row.want - left; d < 0 || d > 10*time.Second {
			t.Errorf("one %s ends in %v, want %v", row.name, left, row.want)
		}
		s.life.ends = s.life.ends.Add(-row.want) // let the time pass
		if s.life.expires = s.life.expires.Add(-row.want); s.due() > 0 == row.over {
			t.Errorf("one %s: %v are left", row.name, s.due())
		}
	}
}
