package machine

import (
	"strings"
	"testing"
	"time"
)

// TestTopNarrow checks which columns a narrow screen has: what sandboxes use comes before what they are.
func TestTopNarrow(t *testing.T) {
	now := time.Now()
	rows := []topRow{
		{ID: "3161a4396d48", Name: "a-name-that-is-longer-than-others", Frontend: "cli", Image: "debian", State: "running", CPUs: 1.5, Memory: 12 << 20, Processes: 3, Created: now},
		{ID: "74b2150b411f", Name: "b\x1b[2J", Frontend: "cli", State: "running", Memory: 1 << 20, Created: now},
	}
	for cols, want := range map[int]string{
		200: "ID NAME FRONTEND STATE CPU CPU TIME MEMORY PROCESSES COMMANDS AGE IMAGE",
		80:  "ID NAME CPU MEMORY PROCESSES AGE",
		40:  "NAME CPU MEMORY PROCESSES",
		30:  "NAME CPU MEMORY",
		3:   "NAME CPU MEMORY",
	} {
		drawn := topNarrow(topTable(rows, now), cols)
		head, _, _ := strings.Cut(drawn, "\n")
		if got := strings.Join(strings.Fields(head), " "); got != want {
			t.Errorf("%d columns: %q, want %q", cols, got, want)
		}
		if w := widest(drawn); w > cols && cols > 20 {
			t.Errorf("%d columns: a line has %d", cols, w)
		}
		if cols == 40 && !strings.Contains(drawn, "a-name-that-…  150%") || strings.Contains(drawn, "\x1b") {
			t.Errorf("%d columns:\n%s", cols, drawn)
		}
	}
}
