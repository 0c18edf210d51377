package cli

import (
	"fmt"
	"strings"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
)

// finding is a layer, a limit or a probe, for display.
type finding struct {
	name             string
	status           runner.Status
	detail, why, fix string
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

// findings returns a table of findings. Lines with the reason and the fix follow those that have one.
func findings(indent string, all []finding, on cmdline.Terminal) string {
	name, status := 0, 0
	for _, f := range all {
		name, status = max(name, len(f.name)), max(status, len(f.status))
	}
	var b strings.Builder
	for _, f := range all {
		word := paint(on, f.status, fmt.Sprintf("%-*s", status, f.status))
		line := fmt.Sprintf("%s%-*s  %s  %s", indent, name, f.name, word, text.SafeLine(f.detail))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		if f.why != "" {
			fmt.Fprintf(&b, "%s    why: %s\n", indent, text.SafeLine(f.why))
		}
		if f.fix != "" {
			fmt.Fprintf(&b, "%s    fix: %s\n", indent, text.SafeLine(f.fix))
		}
	}
	return b.String()
}
