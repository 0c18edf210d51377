package launch

import (
	"fmt"
	"io"
	"sync"
	"time"

	"demesne/runner"
)

// Stages collects durations: the runner's own stages, and those that only the client sees. It is safe for
// concurrent use.
type Stages struct {
	mu    sync.Mutex
	list  []runner.Stage
	exec  time.Time // when the command started
	first time.Time // when its first output was copied
	end   time.Time // when its result arrived
}

func (s *Stages) add(st ...runner.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, st...)
}

func (s *Stages) executed() { s.mark(&s.exec) }

func (s *Stages) firstByte() { s.mark(&s.first) }

func (s *Stages) ended() { s.mark(&s.end) }

// mark sets t to the current time, once.
func (s *Stages) mark(t *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.IsZero() {
		*t = time.Now()
	}
}

// All returns the stages in order; the last one is the total time since began.
func (s *Stages) All(began time.Time) []runner.Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append([]runner.Stage(nil), s.list...)
	for _, mark := range []struct {
		name string
		at   time.Time
	}{{"first byte", s.first}, {"result", s.end}} {
		if !s.exec.IsZero() && !mark.at.IsZero() {
			all = append(all, runner.Stage{Name: mark.name, MS: milliseconds(mark.at.Sub(s.exec))})
		}
	}
	return append(all, runner.Stage{Name: "total", MS: milliseconds(time.Since(began))})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// PrintTrace writes the stages as a table. "first byte" and "result" count from the command's start.
func PrintTrace(w io.Writer, trace []runner.Stage) {
	for _, st := range trace {
		fmt.Fprintf(w, "%-16s %9.3f ms\n", st.Name, st.MS)
	}
}
