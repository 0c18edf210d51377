package headless

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"demesne/agents"
	"demesne/agents/tree"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// view shows a run to a person, or as JSON lines to a program. Text of an agent is untrusted: what a terminal could act on
// is replaced.
type view struct {
	out, errs io.Writer
	json      bool
	raw       bool // out is not a terminal: the answer is printed as it is
	term      cmdline.Terminal
	same      bool // out and errs are one terminal

	mu   sync.Mutex
	last string // the latest text that was shown
}

func newView(out, errs io.Writer, asJSON bool, term cmdline.Terminal) *view {
	v := &view{out: out, errs: errs, json: asJSON, term: term, raw: true}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		v.raw = err == nil && info.Mode()&os.ModeCharDevice == 0
		if e, ok := errs.(*os.File); ok && !v.raw && err == nil {
			other, err := e.Stat()
			v.same = err == nil && os.SameFile(info, other)
		}
	}
	return v
}

func (v *view) show(n tree.Notice) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.json {
		if b, err := json.Marshal(n); err == nil {
			v.out.Write(append(b, '\n'))
		}
		return
	}
	if line := v.line(n); line != "" {
		if n.Kind == "text" && n.Child == "" {
			v.last = line
		}
		if n.Child != "" {
			line = prefixed(n.Child+": ", line)
		}
		io.WriteString(v.errs, line+"\n")
	}
}

// answer prints the final answer, unless it is on the same terminal already: most agents' last text is their answer.
func (v *view) answer(r *agents.Result) {
	v.mu.Lock()
	defer v.mu.Unlock()
	answer := strings.TrimRight(r.Stdout.Text, "\n")
	if !v.raw {
		answer = lines(answer)
	}
	if answer != "" && !(v.same && answer == v.last) {
		io.WriteString(v.out, answer+"\n")
	}
}

// line returns the text of a notice, or "" for one that is not shown.
func (v *view) line(n tree.Notice) string {
	switch n.Kind {
	case tree.NoticeStarted:
		return "output: " + text.SafeLine(n.Output)
	case "text":
		return lines(strings.TrimRight(n.Text, "\n"))
	case "tool_call":
		return "→ " + text.SafeLine(strings.TrimSpace(n.Tool+" "+n.Text))
	case "tool_result":
		if n.Failed {
			return v.term.Red("  failed: ") + text.SafeLine(n.Text)
		}
		return ""
	case "error", "rate_limit":
		return v.term.Yellow(text.SafeLine(n.Text))
	case tree.NoticeUsage:
		return v.term.Green(fmt.Sprintf("$%.4f, %s", n.Total, countOf(n.Turns)))
	case tree.NoticeWaiting:
		return v.term.Yellow(fmt.Sprintf("waiting until %s for the end of %s", n.Until.Local().Format(time.TimeOnly), n.Event.Text))
	case tree.NoticeNote:
		return "note: " + n.Event.Text
	case tree.NoticeEnded:
		return v.ended(n)
	}
	return ""
}

func (v *view) ended(n tree.Notice) string {
	line := fmt.Sprintf("ended: $%.4f", n.Total)
	if n.Event.Text != "" {
		line = v.term.Red(fmt.Sprintf("ended: %s ($%.4f)", text.SafeLine(n.Event.Text), n.Total))
	}
	if n.Conversation != "" {
		line += "\nto continue: demesne agent run --continue " + n.Conversation + " PROMPT"
	}
	return line
}

func countOf(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

// lines replaces the characters of a text that a terminal could act on. It keeps line feeds and tabs.
func lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, s)
}

func prefixed(prefix, s string) string { return prefix + strings.ReplaceAll(s, "\n", "\n"+prefix) }

// progress returns one line for a caller that shows what the agent does, or "".
func progress(n tree.Notice) string {
	v := view{}
	line, _, _ := strings.Cut(v.line(n), "\n")
	if line != "" && n.Child != "" {
		line = n.Child + ": " + line
	}
	return line
}
