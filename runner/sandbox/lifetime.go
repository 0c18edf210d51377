package sandbox

import (
	"fmt"
	"os"
	"time"

	"demesne/runner"
)

const (
	// defaultTTL is the time to live of a persistent sandbox without a TTL in its Spec.
	defaultTTL = 48 * time.Hour
	// unopened is how long a sandbox survives whose creator died before another caller learned its id.
	unopened = 30 * time.Second
)

// lease is the part of a sandbox that says when it expires. The sandbox's mu guards all of it.
type lease struct {
	expires time.Time
	ends    time.Time   // expires, or sooner: see bound
	timer   *time.Timer // fires at ends
	maker   Caller      // the only caller that knows the sandbox, until it is opened or used; nil: others know it
}

// bound sets when an unused sandbox ends. If only its maker knows it, that is soon; while the maker is connected, the
// timer postpones it again and again.
func (l *lease) bound() {
	l.ends = l.expires
	if soon := time.Now().Add(unopened); l.maker != nil && soon.Before(l.ends) {
		l.ends = soon
	}
}

// startClock starts the timer that ends s.
func (s *Sandbox) startClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew()
	s.lease.timer = time.AfterFunc(time.Until(s.lease.ends), s.tick)
	s.undo.add(func() { s.lease.timer.Stop() })
}

// tick runs when the timer fires.
func (s *Sandbox) tick() {
	s.mu.Lock()
	left := s.due()
	if left > 0 {
		s.lease.timer.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.Remove("its time to live was over")
	}
}

// due returns the time that s has left. A running command counts as a use. s.mu is held.
func (s *Sandbox) due() time.Duration {
	switch m := s.lease.maker; {
	case len(s.commands.running) > 0:
		s.renew()
	case m != nil && !m.Left():
		s.bound()
	}
	return time.Until(s.lease.ends)
}

// used records a use by a caller that knows s. s.mu is held.
func (s *Sandbox) used() {
	s.lease.maker = nil
	s.renew()
}

// renew postpones the expiry of s. s.mu is held.
func (s *Sandbox) renew() {
	if s.spec.Lifetime != runner.Persistent || s.ending {
		return
	}
	s.lease.expires = expiry(s.spec, s.created, time.Now())
	s.bound()
}

// bound sets when an unused s ends, on disk too. s.mu is held.
func (s *Sandbox) bound() {
	s.lease.bound()
	if s.files.own.stay {
		if err := s.files.own.dir.Renew(s.lease.ends); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: renew: %v\n", s.id, err)
		}
	}
}

// Unknown reports whether only its maker knows s.
func (s *Sandbox) Unknown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.maker != nil
}

// expiry returns when a sandbox that is used now expires. It is pure.
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
