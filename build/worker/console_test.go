package worker

import (
	"testing"

	"demesne/build/executor"
	"demesne/internal/cmdline"
)

// TestStyle checks how --progress and --quiet are resolved.
func TestStyle(t *testing.T) {
	for _, c := range []struct {
		word   string
		quiet  bool
		redraw bool
		want   executor.Style
		wrong  bool
	}{
		{"", false, true, executor.Live, false}, {"auto", false, true, executor.Live, false}, {"auto", false, false, executor.Plain, false},
		{"plain", false, true, executor.Plain, false}, {"tty", false, true, executor.Live, false}, {"tty", false, false, executor.Plain, true}, {"tty", true, true, executor.Quiet, false},
	} {
		got, err := styleOf(c.word, c.quiet, cmdline.Terminal{Redraw: c.redraw})
		if got != c.want || (err != nil) != c.wrong {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
