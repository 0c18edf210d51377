package executor

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	redrawEvery = 100 * time.Millisecond
	tailShown   = 3 // lines of output below a running step
)

// redraw draws the running steps again and again, and after a change of the terminal's size, until stop is called.
func (w *show) redraw() {
	ticks, sizes, end, ended := time.NewTicker(redrawEvery), make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(sizes, syscall.SIGWINCH)
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-ticks.C:
			case <-sizes:
			}
			w.mu.Lock()
			w.draw()
			w.mu.Unlock()
		}
	}()
	w.stop = func() {
		ticks.Stop()
		signal.Stop(sizes)
		close(end)
		<-ended
	}
}

// size returns the terminal's columns and rows.
func (w *show) size() (columns, rows int) {
	if s, err := unix.IoctlGetWinsize(int(w.file.Fd()), unix.TIOCGWINSZ); err == nil && s.Col > 0 && s.Row > 0 {
		return int(s.Col), int(s.Row)
	}
	return 80, 24
}

func (w *show) width() int { columns, _ := w.size(); return columns }

// draw rewrites the lines of the running steps, below new lines that remain. Those may be wrapped by the terminal; lines
// that are redrawn are cut, because a wrapped line could not be erased.
func (w *show) draw(remain ...string) {
	columns, rows := w.size()
	var b strings.Builder
	b.WriteString(w.home(columns))
	for _, line := range remain {
		b.WriteString(cut(line, max(columns-1, 20)) + "\x1b[K\n")
	}
	all := w.list(columns, rows)
	w.drawn = w.drawn[:0]
	for i, line := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		line = cut(line, columns-1)
		b.WriteString(line + "\x1b[K")
		w.drawn = append(w.drawn, width(line))
	}
	b.WriteString("\x1b[J")
	w.file.WriteString(b.String())
}

// list returns the lines to be drawn: how far the build is, and each running step with the last lines of its output, as
// far as there are rows for them.
func (w *show) list(columns, rows int) []string {
	all := []string{w.header()}
	free := max(0, rows-2)
	steps := w.running[:min(len(w.running), free)]
	each := 0
	if len(steps) > 0 {
		each = min(tailShown, (free-len(steps))/len(steps))
	}
	for _, t := range steps {
		all = append(all, fitted(t.head, t.text, w.now().Sub(t.began), columns))
		tail := t.output.tail
		for _, line := range tail[max(0, len(tail)-each):] {
			all = append(all, "   "+line)
		}
	}
	return all
}

// header says how far the build is.
func (w *show) header() string {
	return fmt.Sprintf("[+] Building %.1fs (%d/%d)", w.now().Sub(w.began).Seconds(), w.finished, w.of)
}

// fitted returns the line of a step, with its time at the end.
func fitted(head, text string, took time.Duration, columns int) string {
	end := fmt.Sprintf("  %.1fs", took.Seconds())
	return cut("=> "+head+" "+text, max(columns-1-len(end), 10)) + end
}

// home returns the control sequence that moves to the start of the first line. A terminal that became narrower has
// wrapped the lines.
func (w *show) home(columns int) string {
	rows := 0
	for _, n := range w.drawn {
		rows += 1 + max(0, n-1)/columns
	}
	if rows > 1 {
		return fmt.Sprintf("\r\x1b[%dA", rows-1)
	}
	return "\r"
}

// erase removes the lines.
func (w *show) erase() {
	if len(w.drawn) > 0 {
		w.file.WriteString(w.home(w.width()) + "\x1b[J")
		w.drawn = nil
	}
}

// cut shortens a line to so many columns.
func cut(line string, columns int) string {
	n := 0
	for i, r := range line {
		if n += wide(r); n > columns {
			return line[:i]
		}
	}
	return line
}

func width(line string) (n int) {
	for _, r := range line {
		n += wide(r)
	}
	return n
}

// wide returns at least the columns that a character takes.
func wide(r rune) int {
	if r >= 0x1100 {
		return 2
	}
	return 1
}
