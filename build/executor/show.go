package executor

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/build/containerfile"
	"demesne/images/events"
	"demesne/internal/text"
)

// Style is how progress is shown.
type Style int

const (
	Plain    Style = iota // a line at a time; each begins with the stage and the number of the step
	Live                  // on a terminal: the running steps are redrawn, and finished ones remain: see showlive.go
	Quiet                 // nothing but the output of a failed step
	Reported              // events for a program, and the output of a failed step
)

// show shows the progress of a build.
type show struct {
	style Style
	file  *os.File // stderr
	now   func() time.Time

	mu       sync.Mutex
	began    time.Time
	finished int     // instructions
	of       int     // instructions, as far as is known
	running  []*task // in the order of their begin
	drawn    []int   // columns of the lines that are redrawn
	stop     func()  // of the redrawing
	events   func(events.Event)
}

// task is a step that runs, or an image that is pulled.
type task struct {
	head, text string
	began      time.Time
	output     *lines
}

// newShow begins to show a build of so many instructions.
func newShow(to *os.File, s Style, of int) *show {
	w := &show{style: s, file: to, now: time.Now, began: time.Now(), of: of, stop: func() {}}
	if s == Live {
		w.redraw()
	}
	return w
}

// line prints a line that remains.
func (w *show) line(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.print(text.SafeLine(fmt.Sprintf(format, a...)))
}

func (w *show) print(line string) {
	switch w.style {
	case Plain:
		fmt.Fprintln(w.file, line)
	case Live:
		w.draw(line)
	case Reported:
		w.notice(line)
	}
}

// notice reports a line to a program.
func (w *show) notice(line string) {
	w.events(events.Event{Event: events.Notice, Why: text.SafeLine(line)})
}

func (w *show) from(s *stage) {
	base := s.plan.Image
	switch {
	case s.plan.Scratch:
		base = containerfile.Scratch
	case s.plan.Parent != nil:
		base = s.plan.Parent.Name
	}
	if w.style == Plain || w.style == Reported {
		w.line("[%s] FROM %s", s.plan.Name, base)
	}
}

func (s *stage) at() string { return fmt.Sprintf("[%s %d/%d]", s.plan.Name, s.steps, s.of) }

// configured counts an instruction that made no layer.
func (w *show) configured() {
	w.mu.Lock()
	w.finished++
	w.mu.Unlock()
}

func (w *show) begin(s *stage, step *containerfile.Step) {
	t := &task{head: s.at(), text: text.SafeLine(step.Text), began: w.now()}
	t.output = &lines{show: w, head: t.head}
	s.task = t
	w.add(t)
	if w.style == Plain || w.style == Reported {
		w.line("%s %s", t.head, t.text)
	}
}

func (w *show) add(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = append(w.running, t)
}

// remove ends a task; done counts it as an instruction.
func (w *show) remove(t *task, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = slices.DeleteFunc(w.running, func(o *task) bool { return o == t })
	if done {
		w.finished++
	}
}

func (w *show) cached(s *stage, step *containerfile.Step) {
	w.configured()
	if w.style == Live {
		w.line("=> CACHED %s %s", s.at(), step.Text)
		return
	}
	w.line("%s CACHED %s", s.at(), step.Text)
}

func (w *show) done(s *stage, step *containerfile.Step, took time.Duration) {
	w.remove(s.task, true)
	if w.style == Live {
		w.line("%s", fitted(s.at(), text.SafeLine(step.Text), took, w.width()))
		return
	}
	w.line("%s DONE %.1fs", s.at(), took.Seconds())
}

// failed ends a step. Its output has been shown only in the plain style.
func (w *show) failed(s *stage, step *containerfile.Step) {
	w.remove(s.task, false)
	if w.style == Plain {
		w.line("%s FAILED", s.at())
		return
	}
	if w.style == Live {
		w.line("=> FAILED %s %s", s.at(), step.Text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.style == Live {
		w.erase()
	}
	tail := s.task.output.tail
	if w.style == Reported {
		tail = tail[max(0, len(tail)-maxReported):]
	}
	for _, line := range tail {
		line = s.task.head + " " + line
		if w.style == Reported {
			w.notice(line)
		} else {
			fmt.Fprintln(w.file, line)
		}
	}
}

func (w *show) note(line string) { w.line("%s", line) }

// close ends the redrawing. Only other output may follow.
func (w *show) close() {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.style == Live && len(w.drawn) > 0 {
		w.erase()
		fmt.Fprintln(w.file, w.header())
	}
}

// pulling returns a function that shows the events of a pull, and one that ends it.
func (w *show) pulling(name string) (on func(events.Event), done func()) {
	p := &pulled{show: w, task: &task{head: "pull", text: name, began: w.now()}, layers: map[string]*events.Event{}}
	p.task.output = &lines{show: w, head: "[" + name + "]"}
	return p.take, func() { w.remove(p.task, false) }
}

// pulled is the progress of a pull.
type pulled struct {
	*show
	task   *task
	mu     sync.Mutex
	shown  bool
	layers map[string]*events.Event // by digest
}

// take handles an event.
func (p *pulled) take(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shown {
		p.shown = true
		p.add(p.task)
	}
	switch {
	case e.Event == events.Retry:
		p.line("[%s] again in %s: %s", p.task.text, e.In.Round(time.Millisecond), e.Why)
	case e.Event == events.Notice && (e.DiffID == "" || p.style == Plain):
		p.line("[%s] %s", p.task.text, e.Why)
	case e.Event == events.Layer && e.Digest != "":
		p.layer(e)
	}
}

// layer shows how much of all layers has come.
func (p *pulled) layer(e events.Event) {
	l := p.layers[string(e.Digest)]
	if l == nil {
		l = &events.Event{}
		p.layers[string(e.Digest)] = l
	}
	l.Total = max(l.Total, e.Total)
	l.Bytes = max(l.Bytes, e.Bytes)
	if e.State == events.Pulled || e.State == events.Present {
		l.Bytes = l.Total
		if p.style == Plain && e.State == events.Pulled {
			p.line("[%s] layer %.12s: %s", p.task.text, e.Digest.Encoded(), text.FormatBytes(l.Total))
		}
	}
	var bytes, total int64
	for _, l := range p.layers {
		bytes, total = bytes+l.Bytes, total+l.Total
	}
	p.task.output.status(text.FormatBytes(bytes) + " of " + text.FormatBytes(total))
}

// lines takes the output of a command. It prints whole lines behind a head, or keeps the last ones. Longer ones are cut.
// Text that a carriage return ends is replaced by what follows.
type lines struct {
	show *show
	head string
	rest []byte
	over bool     // the last line of tail ended in a carriage return
	tail []string // for the styles live and quiet
}

const (
	maxLine = 16 << 10
	maxTail = 200 // lines
	// maxReported is how many lines of output are reported of a step that failed.
	maxReported = 15
)

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := slices.IndexFunc(l.rest, func(c byte) bool { return c == '\n' || c == '\r' })
		switch {
		case i < 0 && len(l.rest) < maxLine, i >= 0 && l.rest[i] == '\r' && i == len(l.rest)-1:
			return len(p), nil // the character after a carriage return decides
		case i < 0:
			i = len(l.rest) - 1
			l.put(string(l.rest), '\n')
		case l.rest[i] == '\r' && l.rest[i+1] == '\n':
			l.put(string(l.rest[:i]), '\n')
			i++
		default:
			l.put(string(l.rest[:i]), l.rest[i])
		}
		l.rest = l.rest[i+1:]
	}
}

// Close shows what no line feed ended.
func (l *lines) Close() error {
	if len(l.rest) > 0 {
		l.put(string(l.rest), '\n')
		l.rest = nil
	}
	return nil
}

// status replaces the last line.
func (l *lines) status(line string) { l.put(line, '\r') }

// put takes a line and the character that ended it.
func (l *lines) put(line string, end byte) {
	line = text.SafeLine(line)
	if l.show.style == Plain {
		if end == '\n' {
			l.show.line("%s %s", l.head, line)
		}
		return
	}
	l.show.mu.Lock()
	defer l.show.mu.Unlock()
	if l.over && len(l.tail) > 0 && (line != "" || end == '\r') {
		l.tail = l.tail[:len(l.tail)-1]
	}
	if !l.over || line != "" {
		l.tail = append(l.tail, line)
	}
	l.over = end == '\r'
	if len(l.tail) > maxTail {
		l.tail = slices.Delete(l.tail, 0, len(l.tail)-maxTail)
	}
}
