package sigquit

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestQuit is its own program, too: one that is sent SIGQUIT, and says so if it was told.
func TestQuit(t *testing.T) {
	if how := os.Getenv("DEMESNE_QUIT"); how != "" {
		before := ByDefault()
		if how == "watched" {
			told := make(chan os.Signal, 1)
			signal.Notify(told, syscall.SIGQUIT)
			before.Restore()
			before.Restore()
			syscall.Kill(os.Getpid(), syscall.SIGQUIT)
			os.Stdout.WriteString((<-told).String() + "\n")
			os.Exit(0)
		}
		syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		time.Sleep(time.Minute) // select {} would be a deadlock while the signal is on its way
	}
	for how, want := range map[string]struct{ said, end string }{
		"default": {"", "signal: quit"},
		"watched": {"quit\n", ""},
	} {
		c := exec.Command(os.Args[0], "-test.run", "^TestQuit$")
		c.Dir, c.Env = t.TempDir(), append(os.Environ(), "DEMESNE_QUIT="+how)
		said, err := c.CombinedOutput()
		end := ""
		if err != nil {
			end = strings.TrimSuffix(err.Error(), " (core dumped)")
		}
		if string(said) != want.said || end != want.end {
			t.Errorf("%s: said %q, %v", how, said, err)
		}
	}
	var none *Action
	none.Restore()
}
