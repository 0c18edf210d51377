package engine

import (
	"fmt"
	"os"
	"time"

	"demesne/runner"
)

const (
	// defaultTTL is how long a persistent sandbox lives when nobody says otherwise.
	defaultTTL = 48 * time.Hour
	// untold is how long one stays whose maker died before anybody else knew of it.
	untold = 30 * time.Second
)

// life is how long a persistent sandbox stays. All of it is under the sandbox's mu.
type life struct {
	expires time.Time
	ends    time.Time   // expires, or sooner: see bound
	clock   *time.Timer // until then
	maker   *caller     // who alone knows of it, until it is opened or used; nil: others do
}

// startClock has s end when its time is up.
func (s *sandbox) startClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew()
	s.life.clock = time.AfterFunc(time.Until(s.life.ends), s.tick)
	s.undo.add(func() { s.life.clock.Stop() })
}

// tick is the clock going off.
func (s *sandbox) tick() {
	s.mu.Lock()
	left := s.due()
	if left > 0 {
		s.life.clock.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.remove("its time to live was over")
	}
}

// due is how long s has left, of which a command that runs in it is a use. s.mu is held.
func (s *sandbox) due() time.Duration {
	switch m := s.life.maker; {
	case len(s.execs) > 0:
		s.renew()
	case m != nil && !m.left():
		s.bound()
	}
	return time.Until(s.life.ends)
}

// used is told of each use by somebody who knows of s. s.mu is held.
func (s *sandbox) used() {
	s.life.maker = nil
	s.renew()
}

// unknown says that nobody but its maker knows of s.
func (s *sandbox) unknown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life.maker != nil
}

// renew puts the end of s off. s.mu is held.
func (s *sandbox) renew() {
	if s.spec.Lifetime != runner.Persistent || s.ending {
		return
	}
	s.life.expires = expiry(s.spec, s.created, time.Now())
	s.bound()
}

// bound says when s ends that nobody uses: with nobody who knows of it but a maker that died, soon.
// While the maker lives, that is put off again and again. s.mu is held.
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

// expiry is when a sandbox ends that is used now.
func expiry(spec runner.Spec, created, now time.Time) time.Time {
	ttl := time.Duration(spec.TTL)
	if ttl <= 0 {
		ttl = defaultTTL
	}
	until := now.Add(ttl)
	if age := time.Duration(spec.MaxAge); age > 0 && created.Add(age).Before(until) {
		return created.Add(age)
	}
	return until
}
