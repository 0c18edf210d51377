package proxyclient

import (
	"errors"
	"os"
	"testing"
	"time"

	"demesne/runner"
)

// TestPause: the delay before the next process grows with each one that dies at once, up to a second.
func TestPause(t *testing.T) {
	for tries, want := range map[int]time.Duration{0: 0, 1: 2 * time.Millisecond, 5: 32 * time.Millisecond, 10: time.Second, 1 << 30: time.Second} {
		if got := pause(tries); got != want {
			t.Errorf("after %d: %v, want %v", tries, got, want)
		}
	}
}

// TestOpenFails: Open fails if the program is missing, cannot be executed, or exits before it answers.
func TestOpenFails(t *testing.T) {
	for name, path := range map[string]string{"none": "", "no program": "/etc/hostname", "ends": "/bin/true"} {
		var p Proxy
		if path != "" {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			p.Program(f)
		}
		log, err := os.CreateTemp(t.TempDir(), "log")
		if err != nil {
			t.Fatal(err)
		}
		if o, err := p.Open(Config{Sandbox: "s", Egress: runner.Egress{Mode: "open"}, Log: log}); err == nil {
			t.Errorf("%s: %+v", name, o)
		}
		if err := log.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the log stayed open: %v", name, err)
		}
		p.Close()
		if _, err := p.Plan(runner.Egress{}); err == nil {
			t.Errorf("%s: a closed one plans", name)
		}
	}
}
