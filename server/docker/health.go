package docker

import (
	"context"
	"time"

	"demesne/session"
)

// healthConfig is a health check in a creation. Times are nanoseconds.
type healthConfig struct {
	Test                                          []string
	Interval, Timeout, StartPeriod, StartInterval int64
	Retries                                       int
}

// healthState is the health in answers.
type healthState struct {
	Status        string
	FailingStreak int
	Log           []healthResult
}

type healthResult struct {
	Start, End time.Time
	ExitCode   int
	Output     string
}

// healthcheck is a checked health check.
type healthcheck struct {
	argv                                     []string
	interval, timeout, period, startInterval time.Duration
	retries                                  int
}

// leastInterval bounds how often a container is checked.
const leastInterval = 100 * time.Millisecond

func newHealthcheck(c *healthConfig) *healthcheck {
	if c == nil || len(c.Test) < 2 {
		return nil
	}
	h := &healthcheck{retries: c.Retries}
	switch c.Test[0] {
	case "CMD":
		h.argv = c.Test[1:]
	case "CMD-SHELL":
		h.argv = session.Shell(c.Test[1])
	default:
		return nil
	}
	or := func(ns int64, d time.Duration) time.Duration {
		if ns <= 0 {
			return d
		}
		return max(time.Duration(ns), leastInterval)
	}
	h.interval, h.timeout, h.startInterval, h.period = or(c.Interval, 30*time.Second), or(c.Timeout, 30*time.Second), or(c.StartInterval, 5*time.Second), time.Duration(max(0, c.StartPeriod))
	if h.retries <= 0 {
		h.retries = 3
	}
	return h
}

// watchHealth checks the health of a container until its command ends.
func (s *server) watchHealth(c *container, p *run) {
	h := c.health
	if h == nil {
		return
	}
	set := func(change func(*healthState)) {
		c.mu.Lock()
		before := c.state.health.Status
		if c.next == p {
			change(&c.state.health)
		}
		after := c.state.health.Status
		c.mu.Unlock()
		if before != after {
			s.tell(c, "health_status: "+after, nil)
		}
	}
	set(func(st *healthState) { *st = healthState{Status: "starting"} })
	go func() {
		began := time.Now()
		for {
			wait := h.interval
			if h.period > 0 && time.Since(began) < h.period {
				wait = min(wait, h.startInterval)
			}
			select {
			case <-p.done:
				return
			case <-time.After(wait):
			}
			ctx, cancel := context.WithTimeout(s.ctx, h.timeout)
			at := time.Now()
			code, out, err := s.runIn(ctx, c, h.argv)
			cancel()
			if err != nil {
				code, out = -1, err.Error()
			}
			set(func(st *healthState) {
				if st.Log = append(st.Log, healthResult{at, time.Now(), code, out}); len(st.Log) > 5 {
					st.Log = st.Log[1:]
				}
				switch {
				case code == 0:
					st.Status, st.FailingStreak = "healthy", 0
				case time.Since(began) >= h.period:
					if st.FailingStreak++; st.FailingStreak >= h.retries {
						st.Status = "unhealthy"
					}
				}
			})
		}
	}()
}
