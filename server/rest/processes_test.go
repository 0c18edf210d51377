package rest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/client"
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
		// It is the last one only until process ids begin again at the lowest.
		if i := slices.IndexFunc(all, func(p client.Process) bool { return strings.HasSuffix(p.Command, " 3141") }); i >= 0 {
			if p := all[i]; p.Command != "a) R 1 1\n\uFFFD<b> 3141" || p.Parent != 1 {
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
