package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestSessionQueue queues commands and an agent's call in the line of one sandbox. A command that is killed or
// interrupted in the line never runs, and blocks no other.
func TestSessionQueue(t *testing.T) {
	b := newBox(t)
	b.must("create", "--key", "k", "--share", "mcp")
	b.must("run", "--key", "k", "-c", "echo 0 > /tmp/n")
	box := strings.TrimSpace(b.must("ls", "-q"))
	line := b.home + "/.demesne/turns"
	come := func(n int) {
		t.Helper()
		eventually(t, "it to stand in line", func() bool { return len(names(line)) == n+1 }) // plus one lock file
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.must("exec", "--queue", box, "-c", "while ! test -e /tmp/go; do sleep 0.02; done") })
	come(1)
	step := func(i int) string {
		return fmt.Sprintf("n=$(cat /tmp/n); sleep 0.05; echo $((n+1)) > /tmp/n; echo %d >> /tmp/order", i)
	}
	wg.Go(func() { b.must("exec", "--key", "k", "--queue", "-c", step(0)) })
	come(2)
	// The entry of one that was ended may stay, so others are known by names of their own.
	another := func(before []string) {
		t.Helper()
		eventually(t, "another to stand in line", func() bool {
			return slices.ContainsFunc(names(line), func(n string) bool { return !slices.Contains(before, n) })
		})
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		before := names(line)
		cmd := b.command("demesne", "exec", "--queue", box, "-c", "echo gone >> /tmp/order")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		another(before)
		cmd.Process.Signal(sig)
		cmd.Wait()
		if code := exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)); code != 128+int(sig) {
			t.Errorf("%v: exit %d", sig, code)
		}
	}
	agent, before := b.mcp(), names(line)
	_, answer := agent.start("sandbox_exec", args{"sandbox_id": box, "queue": true, "command": step(1)})
	another(before)
	before = names(line)
	wg.Go(func() { b.must("run", "--key", "k", "--queue", "-c", step(2)) })
	another(before)
	b.must("exec", box, "--", "touch", "/tmp/go")
	agent.await(answer)
	wg.Wait()
	if got := strings.Fields(b.must("exec", box, "--", "cat", "/tmp/n", "/tmp/order")); fmt.Sprint(got) != "[3 0 1 2]" {
		t.Errorf("in the order they were served: %v", got)
	}
	if left := names(line); len(left) != 1 {
		t.Errorf("left in line: %v", left)
	}
	b.refused(t, "--queue: a sandbox of one command has no queue", "run", "--queue", "--", "true")
	b.must("rm", box)
	os.RemoveAll(line)
}
