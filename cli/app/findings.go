package app

import (
	"fmt"
	"strings"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
)

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
