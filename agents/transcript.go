package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"demesne/runner"
)

// The kinds of an [Event].
const (
	eventSession = "session"     // the program began; Session and Model
	eventText    = "text"        // Text for the user
	eventCall    = "tool_call"   // Tool, ID, and in Text a summary of its arguments
	eventReturn  = "tool_result" // ID, Failed, and in Text its first lines
	eventStep    = "step"        // one turn ended: Cost
	eventLimit   = "rate_limit"  // Reset if it is known
	eventError   = "error"       // Text; the program may go on
	eventResult  = "result"      // the run ended: Text is the final answer or, if Failed, the reason
)

// Event is one step of an agent, read from the output of its program.
type Event struct {
	Kind    string    `json:"event"` // session, text, tool_call, tool_result, step, rate_limit, error or result
	Session string    `json:"session,omitempty"`
	Model   string    `json:"model,omitempty"`
	Agent   string    `json:"agent,omitempty"` // the kind of subagent that did it; empty for the agent itself
	Tool    string    `json:"tool,omitempty"`
	ID      string    `json:"id,omitempty"` // of a tool call and its result
	Text    string    `json:"text,omitempty"`
	Failed  bool      `json:"failed,omitempty"`
	Reset   time.Time `json:"reset,omitzero"`     // when the rate limit ends
	Cost    float64   `json:"cost_usd,omitempty"` // so far, as the program itself counts it
}

// Bounds on what a Transcript keeps. It does not trust the program that wrote the output.
const (
	longestLine = 1 << 20 // longer ones are skipped
	nameKept    = 256     // bytes of an id or a name
	summaryKept = 200     // bytes of the summary of a tool call
	faultKept   = 4096    // bytes of an error
)

// A Transcript reads the output of an agent's program as it is written. It never fails: it ignores what is not in
// the program's format. Its memory is bounded, whatever is written. Another goroutine may call its methods.
type Transcript struct {
	Kept int            // bytes of a tool's result that an event has; 0: as many as a line shows. Set it before the first Write
	Zone *time.Location // of times without a zone in the program's messages; nil: UTC. Set it before the first Write

	on    func(Event)
	parse func(*outcome, []byte)
	plain bool // the output is the answer: see formatText
	now   func() time.Time

	mu      sync.Mutex
	line    []byte // an unfinished one
	skip    bool   // the rest of the line: it is too long
	session string
	all     attributions
	outcome
}

// outcome is the state of one execution of the program so far.
type outcome struct {
	t      *Transcript
	events []Event // not yet given to on

	text   tail // of the assistant
	result tail // the final answer, if the program states it
	ended  bool // a result event was read
	stated bool // result holds the final answer
	fault  string
	cost   float64

	limited bool
	reset   time.Time
}

// formats has the parser of a line for each format of output.
func formats() map[string]func(*outcome, []byte) {
	return map[string]func(*outcome, []byte){
		"claude": (*outcome).claude, "codex": (*outcome).codex, "opencode": (*outcome).opencode, "gemini": (*outcome).gemini,
		"copilot": (*outcome).copilot, "pi": (*outcome).pi, formatText: (*outcome).line,
	}
}

// formatText is the format of a program that prints its answer and nothing else. Exit code 0 is its success: see
// [Transcript.Exited].
const formatText = "text"

// formatNames returns the names of the formats, sorted.
func formatNames() []string { return slices.Sorted(maps.Keys(formats())) }

// NewTranscript returns a Transcript of one of [formatNames]. It shows no event of another format. on may be nil; Write calls it
// with each event.
func NewTranscript(format string, on func(Event)) *Transcript {
	t := &Transcript{on: on, parse: formats()[format], plain: format == formatText, now: time.Now}
	t.outcome.t = t
	return t
}

// Write reads a part of the output. It returns no error.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	if t.plain {
		t.result.WriteString(string(p))
	}
	t.mu.Unlock()
	t.read(p)
	return len(p), nil
}

// read parses the lines of a part of the output, and shows their events.
func (t *Transcript) read(p []byte) {
	t.mu.Lock()
	for len(p) > 0 {
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		t.add(part, whole)
		p = rest
	}
	events := t.events
	t.events = nil
	t.mu.Unlock()
	for _, e := range events {
		if t.on != nil {
			t.on(e)
		}
	}
}

// add adds a part of a line, and parses the line if the part is its end.
func (t *Transcript) add(part []byte, whole bool) {
	if len(t.line)+len(part) > longestLine {
		t.skip = true
	}
	if t.skip {
		t.line = nil
	} else if !whole || len(t.line) > 0 {
		part = append(t.line, part...)
		t.line = part
	}
	if !whole {
		return
	}
	if !t.skip && t.parse != nil {
		t.parse(&t.outcome, part)
	}
	t.line, t.skip = nil, false
}

// Close parses a last line that has no line feed. The program has ended.
func (t *Transcript) Close() error {
	t.read([]byte("\n"))
	return nil
}

// Exited records that the program has ended by itself, with an exit code. In the format "text" exit code 0 states that the
// answer is complete. The other formats state that in their output. Repeated calls are harmless.
func (t *Transcript) Exited(code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = t.ended || t.plain && code == 0
}

// Resume begins the output of another execution of the program, which resumes the session. It discards how the last execution
// ended.
func (t *Transcript) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line, t.skip = nil, false
	t.outcome = outcome{t: t}
}

// Session returns the id with which the program resumes the session, or "".
func (t *Transcript) Session() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

// Final returns the final answer. A long one is cut at its beginning to [runner.AnswerKept] bytes, and says so.
func (t *Transcript) Final() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.final()
}

// Ended reports whether the program stated the result of its work. If it did not, the run failed, even if the
// program exited with 0.
func (t *Transcript) Ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Fault returns the error with which the program ended, or the last one that it reported before it was cut short.
// It is empty after a success.
func (t *Transcript) Fault() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault
}

// Limited reports whether the program gave up because of a rate limit or an overloaded server, so that the session
// can be resumed later. reset is the time that the server or the program named, or zero.
func (t *Transcript) Limited() (reset time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reset, t.limited
}

// begin records a session id.
func (o *outcome) begin(session, model string) {
	o.t.session = sessionID(session)
	o.emit(Event{Kind: eventSession, Session: o.t.session, Model: model})
}

func (o *outcome) emit(e Event) {
	e.ID, e.Tool, e.Model, e.Agent = brief(e.ID), brief(e.Tool), brief(e.Model), brief(e.Agent)
	o.events = append(o.events, e)
}

// say adds a text of the assistant.
func (o *outcome) say(agent, text string) {
	if text == "" {
		return
	}
	if agent == "" {
		o.text.paragraph(text)
	}
	o.emit(Event{Kind: eventText, Agent: agent, Text: text})
}

// call adds a tool call.
func (o *outcome) call(agent, id, tool string, args json.RawMessage) {
	o.emit(Event{Kind: eventCall, Agent: agent, ID: id, Tool: tool, Text: summary(args)})
}

// done adds the result of a tool call.
func (o *outcome) done(agent, id string, failed bool, text string) {
	o.emit(Event{Kind: eventReturn, Agent: agent, ID: id, Failed: failed, Text: cut(text, cmp.Or(o.t.Kept, summaryKept))})
}

// fail records the error with which the program gives up. status is of the HTTP response, or 0.
func (o *outcome) fail(status int, fault string) {
	o.fault = cut(fault, faultKept)
	if isLimit(status, fault) {
		o.limit(resetIn(fault, o.t.now(), o.t.Zone))
	} else {
		o.limited, o.reset = false, time.Time{}
	}
}

// limit records a rate limit. The first known time is kept: claude states it exactly before it states it in
// words.
func (o *outcome) limit(reset time.Time) {
	if o.limited && (reset.IsZero() || !o.reset.IsZero()) {
		return
	}
	o.limited, o.reset = true, reset
	o.emit(Event{Kind: eventLimit, Reset: reset})
}

// answer replaces the final answer.
func (o *outcome) answer(text string) {
	o.result, o.stated = tail{}, true
	o.result.WriteString(text)
}

// end records that the program stated its result. An empty fault is a success.
func (o *outcome) end(fault string) {
	o.ended = true
	if fault == "" {
		o.fault, o.limited, o.reset = "", false, time.Time{}
	}
	text := cut(fault, faultKept)
	if fault == "" {
		text = o.final()
	}
	o.emit(Event{Kind: eventResult, Failed: fault != "", Text: text, Cost: o.cost})
}

func (o *outcome) final() string {
	switch {
	case o.t.plain:
		return strings.TrimRight(o.result.String(), "\n")
	case o.stated:
		return o.result.String()
	}
	return o.text.String()
}

// decode reads a line into v. A field of another type than v's stays empty, and the others are read.
func decode(line []byte, v any) bool {
	err := json.Unmarshal(line, v)
	_, mismatch := err.(*json.UnmarshalTypeError)
	return err == nil || mismatch
}

// tail keeps the end of a text: the last runner.AnswerKept bytes, and at times more.
type tail struct {
	kept []byte
	cut  bool
}

// answerMarker precedes an answer whose beginning was cut off.
const answerMarker = "[stdout truncated to last 32768 bytes; full transcript in output_dir/transcript.jsonl]\n"

func (b *tail) WriteString(s string) {
	b.kept = append(b.kept, s...)
	if len(b.kept) > 2*runner.AnswerKept {
		b.kept, b.cut = bytes.Clone(b.kept[len(b.kept)-runner.AnswerKept:]), true
	}
}

// paragraph adds a text and separates it from the last one.
func (b *tail) paragraph(s string) {
	if len(b.kept) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(s)
}

func (b *tail) String() string {
	kept := b.kept[max(0, len(b.kept)-runner.AnswerKept):]
	if !b.cut && len(kept) == len(b.kept) {
		return strings.ToValidUTF8(string(kept), "\uFFFD")
	}
	for n := 0; n < utf8.UTFMax && len(kept) > 0 && !utf8.RuneStart(kept[0]); n++ { // the rest of a character
		kept = kept[1:]
	}
	return answerMarker + strings.ToValidUTF8(string(kept), "\uFFFD")
}
