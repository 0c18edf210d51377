package images

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"demesne/images/events"
)

const (
	maxLine = 64 << 10 // bytes of an event
	maxText = 2 << 10  // bytes kept of a program's message, in an event or on stderr
)

// readEvents passes each event to on. It returns the last result or error event. The unpacker has read hostile
// layers, so its messages are reduced to one printable line of bounded length.
func readEvents(r io.Reader, on func(events.Event)) (last events.Event, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() { // until the program ends: see release
		var e events.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return last, fmt.Errorf("read event: %w", err)
		}
		e.Text, e.Hint, e.Why = plain(e.Text), plain(e.Hint), plain(e.Why)
		switch {
		case e.Event == events.Result || e.Event == events.Error:
			last = e
		case on != nil:
			on(e)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return last, fmt.Errorf("read event: %w", err)
	}
	return last, nil
}

// plain returns s as one line without control characters, of at most maxText bytes and "...".
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

// readFirst reads r to its end and returns the first paragraph, on one line. A Go program that crashes writes the
// reason there, before the goroutine traces.
func readFirst(r io.Reader) string {
	head, _ := io.ReadAll(io.LimitReader(r, maxText))
	_, _ = io.Copy(io.Discard, r)
	first, _, _ := strings.Cut(string(head), "\n\n")
	return strings.Join(strings.Fields(plain(first)), " ")
}

// verdict returns the error with which a program ended. If ctx ended, its cause takes precedence. Next comes the
// error that the program reported, and then its exit status.
func verdict(ctx context.Context, last events.Event, read, wait error, said string) error {
	switch {
	case ctx.Err() != nil && (wait != nil || last.Event == events.Error):
		return context.Cause(ctx)
	case last.Event == events.Error:
		return &events.Failure{Code: last.Code, Text: last.Text, Hint: last.Hint, Wait: last.In}
	case read != nil:
		return read
	case wait != nil && said != "":
		return fmt.Errorf("ended without a message: %w: %s", wait, said)
	case wait != nil:
		return fmt.Errorf("ended without a message: %w", wait)
	}
	return nil
}

// errNoResult reports that a program exited successfully without a result event.
var errNoResult = errors.New("ended without a result")
