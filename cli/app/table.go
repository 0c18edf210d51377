package app

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
)

// PrintList prints all as JSON, as ids or as a table.
func PrintList[T any](c *Console, json, quiet bool, all []T, id func(T) string, table func([]T, time.Time) string) (int, error) {
	switch {
	case json:
		return c.PrintJSON(append([]T{}, all...))
	case quiet:
		var b strings.Builder
		for _, one := range all {
			b.WriteString(id(one) + "\n")
		}
		return c.Print(b.String())
	}
	return c.Print(table(all, time.Now()))
}

// Columns pads all cells but the last of each row to their column's width. It escapes cells so that none can
// add lines.
func Columns(rows [][]string) string {
	var width []int
	for _, r := range rows {
		for i, cell := range r {
			cell = text.SafeLine(cell)
			r[i] = cell
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			line += cell + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Span formats a duration by its largest unit: 42s, 7m, 3h, 2d.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Clip shortens a text to a number of characters.
func Clip(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// Finding is a layer, a limit or a probe, for display.
type Finding struct {
	Name             string
	Status           runner.Status
	Detail, Why, Fix string
}

// paint returns text in the colour of a status.
func paint(on cmdline.Terminal, s runner.Status, text string) string {
	switch s {
	case runner.Held:
		return on.Green(text)
	case runner.Degraded:
		return on.Yellow(text)
	case runner.Missing:
		return on.Red(text)
	}
	return text
}

// Findings returns a table of findings. Lines with the reason and the fix follow those that have one.
func Findings(indent string, all []Finding, on cmdline.Terminal) string {
	name, status := 0, 0
	for _, f := range all {
		name, status = max(name, len(f.Name)), max(status, len(f.Status))
	}
	var b strings.Builder
	for _, f := range all {
		word := paint(on, f.Status, fmt.Sprintf("%-*s", status, f.Status))
		line := fmt.Sprintf("%s%-*s  %s  %s", indent, name, f.Name, word, text.SafeLine(f.Detail))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if f.Why != "" {
			fmt.Fprintf(&b, "%s    why: %s\n", indent, text.SafeLine(f.Why))
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "%s    fix: %s\n", indent, text.SafeLine(f.Fix))
		}
	}
	return b.String()
}
