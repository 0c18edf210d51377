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
	maxLine = 64 << 10 // of an event
	maxText = 2 << 10  // kept of what a program says, in an event or on stderr
)

// readEvents passes the events on and returns the result, or the error that it tells. The program that
// unpacks has read hostile layers: what it says is of a known form, one line, and not long.
func readEvents(r io.Reader, on func(events.Event)) (last events.Event, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() { // until the program's end, or a second later: see release
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

// plain is s as one line for people.
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

// readFirst reads all and returns the first paragraph of it, on one line: a Go program that dies says there why, and
// then what each goroutine did.
func readFirst(r io.Reader) string {
	head, _ := io.ReadAll(io.LimitReader(r, maxText))
	_, _ = io.Copy(io.Discard, r)
	first, _, _ := strings.Cut(string(head), "\n\n")
	return strings.Join(strings.Fields(plain(first)), " ")
}

// verdict says how a program ended. What it says itself counts more than how it exits; that we
// stopped it counts most.
func verdict(ctx context.Context, last events.Event, read, wait error, said string) error {
	switch {
	case ctx.Err() != nil && (wait != nil || last.Event == events.Error):
		return context.Cause(ctx)
	case last.Event == events.Error:
		return &events.Failure{Code: last.Code, Text: last.Text, Hint: last.Hint}
	case read != nil:
		return read
	case wait != nil && said != "":
		return fmt.Errorf("ended without a word: %w: %s", wait, said)
	case wait != nil:
		return fmt.Errorf("ended without a word: %w", wait)
	}
	return nil
}

// errNoResult says that a program ended well and told nothing.
var errNoResult = errors.New("ended without a result")
