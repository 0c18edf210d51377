package agents

import "strings"

// line shows a line of the format "text". [Transcript.Write] keeps the answer, of which no line is too long.
func (o *outcome) line(line []byte) {
	if text := strings.TrimSpace(string(line)); text != "" {
		o.emit(Event{Kind: eventText, Text: cut(text, faultKept)})
	}
}
