package code

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/session"
)

// Limits bounds the sessions of a Store. A zero field sets no limit.
type Limits struct {
	Sessions  int           // in all. One more ends the one that was idle for longest
	PerCaller int           // one more is refused
	Idle      time.Duration // a session that was not used for this long ends
	Age       time.Duration // a session older than this ends as soon as it is not busy

	Prepared     int           // how many sessions are started ahead; 0: none
	PreparedIdle time.Duration // how long a shape that nothing asks for keeps its prepared session; 0: 5 minutes
}

// Environment variables of the limits.
const (
	varSessions  = "DEMESNE_MAX_SESSIONS"
	varPerCaller = "DEMESNE_MAX_SESSIONS_PER_CALLER"
	varIdle      = "DEMESNE_SESSION_IDLE"
	varAge       = "DEMESNE_SESSION_AGE"
	varPrepared  = "DEMESNE_PREPARED_SESSIONS"
)

// The defaults of prepared sessions. A Python that waits takes about 12 MiB.
const (
	defaultPrepared     = 2
	defaultPreparedIdle = 5 * time.Minute
)

// LimitsFrom reads the limits from environment variables: numbers, and times such as 30m, or a number of seconds. None is
// set by default. Two sessions are prepared, unless the sum of all sandboxes' limits is bounded: they would count, and the
// runner would refuse sandboxes of other programs for them.
func LimitsFrom(getenv func(string) string) (l Limits, err error) {
	l.Prepared = defaultPrepared
	for _, total := range []string{client.EnvTotalMemory, client.EnvTotalDisk, client.EnvTotalPIDs, client.EnvTotalCPUs} {
		if getenv(total) != "" {
			l.Prepared = 0
		}
	}
	for variable, n := range map[string]*int{varSessions: &l.Sessions, varPerCaller: &l.PerCaller, varPrepared: &l.Prepared} {
		v := getenv(variable)
		if v == "" {
			continue
		}
		if *n, err = strconv.Atoi(v); err != nil || *n < 0 {
			return l, fmt.Errorf("%s %q: not a number of at least 0", variable, v)
		}
	}
	for variable, d := range map[string]*time.Duration{varIdle: &l.Idle, varAge: &l.Age} {
		v := getenv(variable)
		if v == "" {
			continue
		}
		seconds, notNumber := strconv.Atoi(v)
		if *d = time.Duration(seconds) * time.Second; notNumber != nil {
			*d, err = time.ParseDuration(v)
		}
		if err != nil || *d < 0 {
			return l, fmt.Errorf("%s %q: not a time, such as 30m", variable, v)
		}
	}
	return l, nil
}

// ErrNoSession is the error of an id that no session of the caller has.
var ErrNoSession = errors.New("no such session")

// ErrTooMany is the error of a session that would exceed a limit.
var ErrTooMany = errors.New("too many sessions")

// Store holds the sessions of a long-lived frontend. It is safe for concurrent use.
type Store struct {
	service *session.Service
	limits  Limits
	ahead   *prepared

	mu     sync.Mutex
	slots  []*slot // the oldest first
	past   []ended // the last sessions that did not end by Stop
	closed bool
	sweep  *time.Timer // calls tidy
	next   time.Time   // when it does; zero: no call is planned
	work   sync.WaitGroup
}

// slot is a session of a Store, or the room for one that is being made.
type slot struct {
	caller string
	*Session
}

// ended remembers a session for the caller that asks for it later.
type ended struct{ caller, id, why string }

const (
	maxPast   = 200
	deadGrace = 10 * time.Minute // how long a session without a kernel keeps its files for the caller
	busyGrace = time.Second      // until the next look at a session that was busy when it should have ended
)

// NewStore returns an empty Store.
func NewStore(s *session.Service, l Limits) *Store {
	st := &Store{service: s, limits: l}
	shape := func(ctx context.Context, c session.CreateOptions) (string, bool) { return c.Shape(ctx, s) }
	st.ahead = newPrepared(l, shape, func(ctx context.Context, o Options) (*Session, error) {
		return begin(ctx, s, o, session.Callbacks{})
	})
	return st
}

// Create starts a session of a caller, as [Start] does, and gives it an id. A session of a shape that was asked for lately
// may have been started ahead: nothing has used it. caller is a word of the frontend; a caller has its own sessions only.
func (s *Store) Create(ctx context.Context, caller string, o Options, cb session.Callbacks) (*Session, error) {
	room, evicted, err := s.reserve(caller)
	if err != nil {
		return nil, err
	}
	if evicted != nil {
		evicted.Close()
	}
	c, err := s.Once(ctx, o, cb)
	if err == nil && !s.enter(room, c) {
		c.Close()
		err = errClosed
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(room)
		return nil, fmt.Errorf("create session: %w", err)
	}
	return c, nil
}

// enter gives a session its id and its place. It reports false if the store was closed meanwhile.
func (s *Store) enter(room *slot, c *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	for c.ID == "" || s.find(c.ID) != nil {
		var b [4]byte
		rand.Read(b[:])
		c.ID = hex.EncodeToString(b[:])
	}
	room.Session = c
	s.plan(s.due(c, time.Now()))
	return true
}

// Once starts a session that is not in the store: no limit includes it, and the caller must close it. It may have been
// started ahead too.
func (s *Store) Once(ctx context.Context, o Options, cb session.Callbacks) (*Session, error) {
	if err := o.Language.CheckDependencies(o.Dependencies); err != nil {
		return nil, err
	}
	c, err := s.ahead.take(ctx, o, func() (*Session, error) { return begin(ctx, s.service, o, cb) })
	if err != nil {
		return nil, err
	}
	if err := c.depend(ctx, o.Dependencies); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// reserve makes room for a session of a caller. It may choose a session to end for that, which the store then does not
// have any more; that one may be nil.
func (s *Store) reserve(caller string) (room *slot, evicted *Session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	all, own := 0, []string{}
	for _, o := range s.slots {
		if o.Session != nil && o.Death() != nil { // no limit includes a dead one
			continue
		}
		all++
		if o.caller == caller && o.Session != nil {
			own = append(own, o.ID)
		} else if o.caller == caller {
			own = append(own, "one that starts")
		}
	}
	if l := s.limits.PerCaller; l > 0 && len(own) >= l {
		return nil, nil, text.Hinted(fmt.Errorf("create session: %w: the limit is %d", ErrTooMany, l), "stop one of your sessions: %s", strings.Join(own, ", "))
	}
	if l := s.limits.Sessions; l > 0 && all >= l {
		if evicted = s.evict(); evicted == nil {
			return nil, nil, text.Hinted(fmt.Errorf("create session: %w: all %d are busy", ErrTooMany, l), "try again when one has ended its work")
		}
	}
	room = &slot{caller: caller}
	s.slots = append(s.slots, room)
	return room, evicted, nil
}

// evict takes the session that was idle for longest out of the store, and returns nil if all are busy. s.mu must be held.
func (s *Store) evict() *Session {
	candidates := slices.DeleteFunc(slices.Clone(s.slots), func(o *slot) bool { return o.Session == nil || o.Death() != nil })
	slices.SortStableFunc(candidates, func(a, b *slot) int {
		since, _ := a.Idle()
		other, _ := b.Idle()
		return since.Compare(other)
	})
	for _, o := range candidates {
		if s.retire(o, fmt.Sprintf("it was idle, and a new session needed its place (at most %d)", s.limits.Sessions)) {
			return o.Session
		}
	}
	return nil
}

// retire takes a session out of the store if it is not busy. The caller must close it. s.mu must be held.
func (s *Store) retire(o *slot, why string) bool {
	if !o.Session.retire(why) {
		return false
	}
	s.drop(o)
	s.past = append(s.past, ended{o.caller, o.ID, why})
	s.past = s.past[max(0, len(s.past)-maxPast):]
	return true
}

// drop removes a slot. s.mu must be held.
func (s *Store) drop(o *slot) {
	s.slots = slices.DeleteFunc(s.slots, func(other *slot) bool { return other == o })
}

// find returns the slot of an id, or nil. s.mu must be held.
func (s *Store) find(id string) *slot {
	for _, o := range s.slots {
		if o.Session != nil && o.ID == id {
			return o
		}
	}
	return nil
}

// Get returns the caller's session of that id. The error is ErrNoSession, with the reason if the session has ended.
func (s *Store) Get(caller, id string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.get(caller, id)
	if err != nil {
		return nil, err
	}
	return o.Session, nil
}

// get is Get, for the holder of s.mu.
func (s *Store) get(caller, id string) (*slot, error) {
	if o := s.find(id); o != nil && o.caller == caller {
		return o, nil
	}
	for _, e := range s.past {
		if e.id == id && e.caller == caller {
			return nil, text.Hinted(fmt.Errorf("session %q: %w any more: %s", id, ErrNoSession, e.why), "make a new session")
		}
	}
	return nil, fmt.Errorf("session %q: %w", id, ErrNoSession)
}

// List returns the caller's sessions, the oldest first.
func (s *Store) List(caller string) (all []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.slots {
		if o.caller == caller && o.Session != nil {
			all = append(all, o.Session)
		}
	}
	return all
}

// Stop ends the caller's session of that id, also if it is busy.
func (s *Store) Stop(caller, id string) error {
	s.mu.Lock()
	o, err := s.get(caller, id)
	if err == nil {
		s.drop(o)
	}
	s.mu.Unlock()
	if err == nil {
		o.Close()
	}
	return err
}

// Close ends all sessions, and waits for that.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.slots
	s.slots = nil
	if s.sweep != nil {
		s.sweep.Stop()
	}
	for _, o := range all {
		if o.Session != nil {
			s.work.Go(o.Close)
		}
	}
	s.mu.Unlock()
	s.ahead.close()
	s.work.Wait()
}

// due returns when a session should be looked at; zero: never.
func (s *Store) due(c *Session, now time.Time) (at time.Time) {
	since, idle := c.Idle()
	if !idle {
		since = now
	}
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if s.limits.Idle > 0 {
		sooner(since.Add(s.limits.Idle))
	}
	if s.limits.Age > 0 {
		sooner(c.Created.Add(s.limits.Age))
	}
	if c.Death() != nil {
		sooner(since.Add(deadGrace))
	}
	return at
}

// plan schedules tidy for that time or earlier. With zero it is at most deadGrace from now, because a session may die. s.mu
// must be held.
func (s *Store) plan(at time.Time) {
	if latest := time.Now().Add(deadGrace); at.IsZero() || at.After(latest) {
		at = latest
	}
	if s.closed || !s.next.IsZero() && !at.Before(s.next) {
		return
	}
	s.next = at
	if in := max(0, time.Until(at)); s.sweep == nil {
		s.sweep = time.AfterFunc(in, s.tidy)
	} else {
		s.sweep.Reset(in)
	}
}

// tidy ends the sessions that are too old, or were idle for too long, and plans the next look.
func (s *Store) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.next = time.Time{}
	now := time.Now()
	var next time.Time
	for _, o := range slices.Clone(s.slots) {
		if o.Session == nil {
			continue
		}
		at := s.due(o.Session, now)
		if !at.IsZero() && !at.After(now) {
			if s.retire(o, s.outlived(o.Session, now)) {
				s.work.Go(o.Close)
				continue
			}
			at = now.Add(busyGrace)
		}
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if len(s.slots) > 0 {
		s.plan(next)
	}
}

// outlived says why a session that is due ends.
func (s *Store) outlived(c *Session, now time.Time) string {
	switch {
	case c.Death() != nil:
		return c.Death().Error()
	case s.limits.Age > 0 && !now.Before(c.Created.Add(s.limits.Age)):
		return fmt.Sprintf("it was older than %s", s.limits.Age)
	}
	return fmt.Sprintf("it was not used for %s", s.limits.Idle)
}
