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
	mu     sync.Mutex
	to     io.Writer
	quiet  bool
	events *reporter // in place of lines; output of commands is shown only if they fail
	recent []string  // the last lines of output, with events
}

// maxRecent is how many lines of output are shown of a step that failed.
const maxRecent = 15

func (w *show) line(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.events != nil:
		w.events.notice(fmt.Sprintf(format, a...))
	case !w.quiet:
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

func (w *show) failed(s *stage, _ *build.Step, _ error) {
	for _, line := range w.recent {
		w.line("%s", line)
	}
	w.line("%s FAILED", at(s))
}

func (w *show) note(line string) { w.line("%s", line) }

// pulling returns a function that shows the progress of a base.
func (w *show) pulling(string) func(events.Event) {
	return func(e events.Event) {
		if e.Event == events.Notice && e.DiffID == "" {
			w.line("%s", e.Why)
		}
	}
}

// said takes a line of a command's output.
func (w *show) said(head string, line []byte) {
	if w.events == nil {
		w.line("%s %s", head, line)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recent = append(w.recent, head+" "+string(line))
	w.recent = w.recent[max(0, len(w.recent)-maxRecent):]
}

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
		l.show.said(l.head, bytes.TrimRight(l.rest[:i+1], "\r\n"))
		l.rest = l.rest[i+1:]
	}
}
