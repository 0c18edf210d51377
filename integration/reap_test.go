package integration

import (
	"os/exec"
	"testing"
)

// TestReap looks for descendants while a test waits for one: it gets its exit status.
func TestReap(t *testing.T) {
	for range 100 {
		cmd := exec.Command("sh", "-c", "sleep 0 & exit 3") // and an orphan
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 5 {
				descendants()
			}
		}()
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%v", err)
		}
		<-over
	}
	eventually(t, "the orphans to be reaped", func() bool { descendants(); return childless() })
}
