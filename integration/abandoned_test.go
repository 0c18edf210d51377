package integration

import (
	"strings"
	"testing"
)

// TestSessionCallerKilled checks that a command in a persistent sandbox ends when its caller is killed, because
// no other process could cancel it. The sandbox itself remains.
func TestSessionCallerKilled(t *testing.T) {
	b := newBox(t)
	id := b.create("--share", "mcp")
	gone := func(what, pid string) {
		t.Helper()
		eventually(t, what+" to end", func() bool { return b.demesne("exec", id, "-c", "kill -0 "+pid).code != 0 })
	}
	const goesOn = `trap "" HUP INT TERM PIPE; echo $$ > /tmp/pid.new; mv /tmp/pid.new /tmp/pid; while :; do sleep 1; done`
	started := func() (pid string) {
		t.Helper()
		eventually(t, "the command to run", func() bool {
			pid = strings.TrimSpace(b.demesne("exec", id, "-c", "cat /tmp/pid && rm /tmp/pid").stdout)
			return pid != ""
		})
		return pid
	}

	cli := b.command("demesne", "exec", id, "-c", goesOn)
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	pid := started()
	cli.Process.Kill()
	cli.Wait()
	gone("demesne exec's command", pid)

	c := b.mcp()
	c.start("sandbox_exec", args{"sandbox_id": id, "command": goesOn})
	pid = started()
	c.cmd.Process.Kill()
	<-c.ended
	c.cmd.Wait()
	gone("sandbox_exec's command", pid)

	if got := b.must("exec", id, "-c", "echo there"); got != "there\n" {
		t.Errorf("the sandbox: %q", got)
	}
}
