package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"demesne/images/build"
	"demesne/images/events"
	"demesne/internal/text"
)

// show prints the progress of a build, a line at a time: each begins with the stage and the number of the step.
type show struct {
	mu    sync.Mutex
	to    io.Writer
	quiet bool
}

func (w *show) line(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.quiet {
		fmt.Fprintln(w.to, text.SafeLine(fmt.Sprintf(format, a...)))
	}
}

func (w *show) from(s *stage) {
	switch {
	case s.plan.Scratch:
		w.line("[%s] FROM scratch", s.plan.Name)
	case s.plan.Parent != nil:
		w.line("[%s] FROM %s", s.plan.Name, s.plan.Parent.Name)
	default:
		w.line("[%s] FROM %s", s.plan.Name, s.plan.Image)
	}
}

func at(s *stage) string { return fmt.Sprintf("[%s %d/%d]", s.plan.Name, s.steps, s.of) }

func (w *show) begin(s *stage, step *build.Step)  { w.line("%s %s", at(s), step.Text) }
func (w *show) cached(s *stage, step *build.Step) { w.line("%s CACHED %s", at(s), step.Text) }

func (w *show) done(s *stage, _ *build.Step, took time.Duration) {
	w.line("%s DONE %.1fs", at(s), took.Seconds())
}

func (w *show) failed(s *stage, _ *build.Step, _ error) { w.line("%s FAILED", at(s)) }

func (w *show) note(line string) { w.line("%s", line) }

func (w *show) pulling(string) func(events.Event) { return nil }

// output returns a writer for the output of a command.
func (w *show) output(s *stage) io.Writer { return &lines{show: w, head: at(s)} }

// lines writes whole lines behind a head. Longer ones are cut.
type lines struct {
	show *show
	head string
	rest []byte
}

const maxLine = 16 << 10

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(p), nil
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		l.show.line("%s %s", l.head, bytes.TrimRight(l.rest[:i+1], "\r\n"))
		l.rest = l.rest[i+1:]
	}
}
