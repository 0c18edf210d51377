package engine

import (
	"fmt"
	"os"
	"time"

	"demesne/runner"
)

// untold is how long a sandbox survives whose creator died before another caller learned its id.
const untold = 30 * time.Second

// life is the expiry of a persistent sandbox. The sandbox's mu guards all of it.
type life struct {
	expires time.Time
	ends    time.Time   // expires, or sooner: see bound
	clock   *time.Timer // fires at ends
	maker   *caller     // the only caller that knows the sandbox, until it is opened or used; nil: others know it
}

// startClock starts the timer that ends s.
func (s *sandbox) startClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew()
	s.life.clock = time.AfterFunc(time.Until(s.life.ends), s.tick)
	s.undo.add(func() { s.life.clock.Stop() })
}

// tick runs when the timer fires.
func (s *sandbox) tick() {
	s.mu.Lock()
	left := s.due()
	if left > 0 {
		s.life.clock.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.remove("its time to live ended")
	}
}

// due returns the time that s has left. A running command counts as a use. s.mu is held.
func (s *sandbox) due() time.Duration {
	switch m := s.life.maker; {
	case len(s.execs) > 0:
		s.renew()
	case m != nil && !m.left():
		s.bound()
	}
	return time.Until(s.life.ends)
}

// used records a use by a caller that knows s. s.mu is held.
func (s *sandbox) used() {
	s.life.maker = nil
	s.renew()
}

// unknown reports whether only its maker knows s.
func (s *sandbox) unknown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life.maker != nil
}

// renew postpones the expiry of s. s.mu is held.
func (s *sandbox) renew() {
	if s.spec.Lifetime != runner.Persistent || s.ending {
		return
	}
	s.life.expires = expiry(s.spec, s.created, time.Now())
	s.bound()
}

// bound sets when an unused s ends. If only its maker knows s, that is soon; while the maker is connected, tick
// postpones it again and again. s.mu is held.
func (s *sandbox) bound() {
	s.life.ends = s.life.expires
	if soon := time.Now().Add(untold); s.life.maker != nil && soon.Before(s.life.ends) {
		s.life.ends = soon
	}
	if s.kept.stay {
		if err := s.kept.box.Renew(s.life.ends); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: renew: %v\n", s.id, err)
		}
	}
}

// expiry returns when a sandbox that is used now expires.
func expiry(spec runner.Spec, created, now time.Time) time.Time {
	ttl := time.Duration(spec.TTL)
	if ttl <= 0 {
		ttl = runner.Longest
	}
	until := now.Add(ttl)
	if age := time.Duration(spec.MaxAge); age > 0 && created.Add(age).Before(until) {
		return created.Add(age)
	}
	return until
}
