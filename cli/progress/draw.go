package progress

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/text"
)

const (
	maxBars  = 10 // layers that have a bar at once
	maxWidth = 40 // columns of a bar
	// besideBar is the width of the other text in the line of a layer.
	besideBar = len("  0123456789ab []  999.9 MiB of 999.9 MiB  unpacking")
)

// draw rewrites the lines. It truncates them to the terminal's current width, because a wrapped line could not be
// erased, and leaves one of its rows to other text.
func (p *Progress) draw() {
	width, rows := 80, 24
	if w, err := unix.IoctlGetWinsize(stream.FD(p.on.Stderr), unix.TIOCGWINSZ); err == nil && w.Col > 0 && w.Row > 0 {
		width, rows = int(w.Col), int(w.Row)
	}
	lines := p.bars(width, max(0, min(maxBars, rows-2)))
	lines = append(lines, p.noun+": "+p.summary())
	var b strings.Builder
	b.WriteString(p.home())
	for i, text := range lines {
		if i > 0 {
			b.WriteString("\n")
		}
		line := []rune(text)
		b.WriteString(string(line[:min(len(line), width-1)]))
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	p.lines = len(lines)
	fmt.Fprint(p.on.Stderr, b.String())
}

// home returns the control sequence that moves to the start of the first line.
func (p *Progress) home() string {
	if p.lines > 1 {
		return fmt.Sprintf("\r\x1b[%dA", p.lines-1)
	}
	return "\r"
}

// clear erases the lines.
func (p *Progress) clear() {
	if p.lines > 0 {
		fmt.Fprint(p.on.Stderr, p.home()+"\x1b[J")
		p.lines = 0
	}
}

// bars returns the lines of layers that are not finished: first those in progress, then those that wait.
func (p *Progress) bars(width, limit int) []string {
	var lines, waiting []string
	for _, l := range p.order {
		switch {
		case l.unpacked || l.total > 0 && l.fetched == l.total && !l.begun && !l.unpacking:
		case l.begun || l.unpacking:
			lines = append(lines, l.bar(width, p.words))
		default:
			waiting = append(waiting, l.bar(width, p.words))
		}
	}
	lines = append(lines, waiting...)
	return lines[:min(len(lines), limit)]
}

// bar returns the line of one layer. A narrow terminal has room for the figures only.
func (l *layerState) bar(width int, words progressWords) string {
	state := "waiting"
	switch {
	case l.unpacking:
		state = "unpacking"
	case l.begun && l.fetched == l.total:
		state = words.did
	case l.begun:
		state = words.doing
	}
	bar := ""
	if w := min(maxWidth, width-1-besideBar); w >= 5 {
		full := w
		if l.total > 0 {
			full = int(int64(w) * min(l.fetched, l.total) / l.total)
		}
		bar = "[" + strings.Repeat("#", full) + strings.Repeat("-", w-full) + "] "
	}
	return fmt.Sprintf("  %s %s%s of %s  %s", l.name, bar, text.FormatBytes(l.fetched), text.FormatBytes(l.total), state)
}

// summary returns the state of the whole image.
func (p *Progress) summary() string {
	var fetched, total int64
	unpacked := 0
	for _, l := range p.order {
		fetched, total = fetched+l.fetched, total+l.total
		if l.unpacked {
			unpacked++
		}
	}
	sum := text.FormatBytes(fetched) + " of " + text.FormatBytes(total)
	if total > 0 {
		sum += fmt.Sprintf(" (%d%%)", 100*fetched/total)
	}
	if speed := p.rate.of(p.now()); speed > 0 && fetched < total {
		left := time.Duration(float64(total-fetched) / speed * float64(time.Second))
		sum += fmt.Sprintf(", %s/s, %s left", text.FormatBytes(int64(speed)), left.Round(time.Second))
	}
	return fmt.Sprintf("%s, %d of %d layers %s", sum, unpacked, len(p.order), p.words.end)
}
