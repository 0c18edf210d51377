package agents

import (
	"fmt"
	"strings"
	"time"

	"demesne/internal/text"
)

// Line returns an event as one line for a person, without its line feed, or "" if it says nothing new. The text is
// safe to print on a terminal, which wraps it.
func (e Event) Line() string {
	line := ""
	switch e.Kind {
	case eventSession:
		line = strings.TrimSpace("session " + text.SafeLine(e.Session) + " " + text.SafeLine(e.Model))
	case eventText:
		line = text.SafeLine(e.Text)
	case eventCall:
		line = "> " + text.SafeLine(e.Tool) + ": " + text.SafeLine(e.Text)
	case eventReturn:
		line = e.returned()
	case eventLimit:
		line = "rate limit"
		if !e.Reset.IsZero() {
			line += " until " + e.Reset.UTC().Format(time.RFC3339)
		}
	case eventError:
		line = "error: " + text.SafeLine(e.Text)
	case eventStep:
		line = e.spent("")
	case eventResult:
		line = e.ending()
	}
	if e.Agent != "" && line != "" {
		line = "[" + text.SafeLine(e.Agent) + "] " + line
	}
	return line
}

func (e Event) returned() string {
	if e.Failed {
		return strings.TrimSuffix("< failed: "+text.SafeLine(e.Text), ": ")
	}
	if e.Text == "" {
		return ""
	}
	return "< " + text.SafeLine(e.Text)
}

// ending leaves out the answer of a success: the last text was the same.
func (e Event) ending() string {
	if e.Failed {
		return e.spent("failed: " + text.SafeLine(cut(e.Text, faultKept)))
	}
	return e.spent("done")
}

func (e Event) spent(line string) string {
	if e.Cost == 0 {
		return line
	}
	return strings.TrimSpace(fmt.Sprintf("%s $%.4f", line, e.Cost))
}
