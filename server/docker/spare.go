package docker

import (
	"encoding/json"
	"path/filepath"
	"time"

	"demesne/runner"
)

// near is the longest time between two containers of a kind for which the second makes a third one likely. A spare waits as long.
const near = runner.DefaultLinger

// spare is a container that no client has asked for. Its sandbox has the kind that was asked for twice: the third container
// gets it, with its id, from which names come. Nothing was executed in it, and it is used once. There is at most one, beside the
// limits of all containers, because no process of a client is in it.
type spare struct {
	kind string // of the last creation, whether or not there is a spare
	at   time.Time
	c    *container // nil: none
}

// kind describes all that a container's sandbox is made of, except its id. Empty: no spare can take its place, because of its
// name, or of directories and ports, which are bound when they are asked for.
func (c *container) kind(name string) string {
	h := c.body.HostConfig
	if name != "" || c.body.Hostname != "" || len(c.body.mounted)+len(h.PortBindings) > 0 || h.PublishAllPorts {
		return ""
	}
	for _, e := range c.ends {
		if len(e.Aliases) > 0 {
			return ""
		}
	}
	o := c.create
	o.Spec.Hostname, o.Out = "", ""
	text, _ := json.Marshal(o) // of parsed JSON
	return c.digest + string(text)
}

// identify gives a container its id, and what is made of it.
func (s *server) identify(c *container, id string) {
	c.id, c.state.name = id, "c"+id[:11]
	c.create.Out = filepath.Join(s.dir, "out-"+id[:12])
	c.create.Spec.Hostname = firstOf(c.body.Hostname, id[:12])
}

// takeSpare returns the spare whose place a new container takes, with its id; nil: it has none. dropped is closed at the end of
// a spare of another kind; nil: there was none. s.mu is held.
func (s *server) takeSpare(c *container, kind string) (taken *container, dropped <-chan struct{}) {
	if kind == "" || s.ctx.Err() != nil {
		return nil, nil
	}
	sp, same := s.spare.c, kind == s.spare.kind
	if same && time.Since(s.spare.at) < near {
		c.likely = kind
	}
	s.spare = spare{kind: kind, at: time.Now()}
	switch {
	case sp == nil:
		return nil, nil
	case !same:
		return nil, s.drop(sp)
	}
	s.identify(c, sp.id)
	return sp, nil
}

// prepare makes a spare for the container that probably follows c.
func (s *server) prepare(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.likely == "" || s.spare.kind != c.likely || s.spare.c != nil || s.ctx.Err() != nil {
		return
	}
	sp := &container{body: c.body, create: c.create}
	s.identify(sp, newID())
	s.spare.c = sp
	sp.making.Lock()
	go func() {
		defer sp.making.Unlock()
		s.ensured(s.ctx, sp) // an error leaves it without a sandbox: the container makes its own
	}()
	time.AfterFunc(near, func() { s.expire(sp) })
}

// expire ends a spare that no client took.
func (s *server) expire(sp *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare.c == sp {
		s.spare.c = nil
		s.drop(sp)
	}
}

// drop ends a spare, if there is one. ended is closed at its end, for which the server's close waits. s.mu is held.
func (s *server) drop(sp *container) (ended <-chan struct{}) {
	done := make(chan struct{})
	s.ending.Go(func() {
		defer close(done)
		if sp != nil {
			s.endSandbox(sp)
		}
	})
	return done
}
