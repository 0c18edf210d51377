package rest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestProcesses lists a child of the test, whose name and command line are hostile.
func TestProcesses(t *testing.T) {
	child := exec.Command("sleep", "3141")
	child.Args[0] = "a) R 1 1\n\xff<b>"
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		all := processesOf(os.Getpid())
		if len(all) > 0 && strings.HasSuffix(all[len(all)-1].Command, " 3141") {
			if p := all[len(all)-1]; p.Command != "a) R 1 1\n\uFFFD<b> 3141" || p.Parent != 1 {
				t.Errorf("%+v", p)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", all)
		}
	}
	if all := processesOf(0); len(all) > 0 {
		t.Errorf("of no sandbox: %v", all)
	}
}
