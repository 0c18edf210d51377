package procself

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestQuit is also the program it tests: one that sends itself SIGQUIT, and prints the signal if a handler gets it.
func TestQuit(t *testing.T) {
	if how := os.Getenv("DEMESNE_QUIT"); how != "" {
		before := DefaultSIGQUIT()
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
		time.Sleep(time.Minute) // select {} would be reported as a deadlock before the signal arrives
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
	var none *SIGQUITAction
	none.Restore()
}
