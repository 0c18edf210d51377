package integration

import (
	"os"
	"strings"
	"testing"
)

// TestAttach checks that a command on a terminal keeps running after a detach, and after its client is killed. A
// later attach shows what it wrote meanwhile. Only one client has the terminal at a time.
func TestAttach(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box")
	first := b.terminal("exec", "-t", "box", "--", "sh", "-c", `echo here-$((1+1)); while read -r line; do echo "got <$line>"; (until test -e /tmp/go; do sleep 0.05; done; echo "later <$line>"; touch /tmp/said) & done`)
	first.expect("here-2")
	b.refused(t, "another caller has the terminal", "attach", "box")
	first.typ("one\r")
	first.expect("got <one>")
	first.typ("\x10\x11")
	first.expect("detached, the command runs on")
	if code := first.wait(); code != 0 {
		t.Errorf("leaving it exits %d", code)
	}
	b.must("exec", "box", "-c", "touch /tmp/go; until test -e /tmp/said; do sleep 0.05; done")
	second := b.terminal("attach", "box")
	second.expect("later <one>")
	second.typ("two\r")
	second.expect("later <two>")
	second.cmd.Process.Kill()
	second.cmd.Wait()
	var third *terminal
	eventually(t, "the terminal to be free", func() bool {
		third = b.terminal("attach", "box")
		third.typ("three\r")
		eventually(t, "an answer", func() bool { return strings.ContainsAny(third.screen(), "<:") })
		return strings.Contains(third.screen(), "got <three>")
	})
	third.typ("\x04")
	if code := third.wait(); code != 0 {
		t.Errorf("the command exits %d", code)
	}
	// No command has a terminal now, so attach starts a shell. It requires a terminal itself.
	b.refused(t, "no command in it has a terminal", "attach", "box")
	shell := b.terminal("attach", "box")
	shell.typ("echo shell-$((3+4)); exit 5\r")
	shell.expect("shell-7")
	if code := shell.wait(); code != 5 {
		t.Errorf("the shell exits %d", code)
	}
	b.refused(t, "no such sandbox", "attach", "nosuch")
}

// TestAttachMuch checks that unread output does not block a command, and that only the end of long output is
// kept.
func TestAttachMuch(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box")
	first := b.terminal("exec", "-t", "box", "--", "sh", "-c", "echo ready; read x; until test -e /tmp/go; do sleep 0.05; done; seq 1 20000; touch /tmp/done; read x; echo end-$((2*21))")
	first.expect("ready")
	first.typ("\r\x10\x11")
	first.wait()
	b.must("exec", "box", "-c", "touch /tmp/go; until test -e /tmp/done; do sleep 0.05; done")
	second := b.terminal("attach", "box")
	second.expect("20000\r\n")
	if s := second.screen(); len(s) > 70<<10 || strings.Contains(s, "\n500\r") {
		t.Errorf("%d bytes were kept", len(s))
	}
	second.typ("\r")
	second.expect("end-42")
	if code := second.wait(); code != 0 {
		t.Errorf("it exits %d", code)
	}
}

// TestAttachJob checks that attach to a job prints its output and exits with its code.
func TestAttachJob(t *testing.T) {
	b := newBox(t)
	b.Cleanup(func() { os.RemoveAll(b.home + "/.demesne/jobs") })
	job := strings.TrimSpace(b.must("run", "--background", "-c", "echo out; sleep 0.3; echo later; exit 3"))
	if r := b.demesne("attach", job); r.code != 3 || r.stdout != "out\nlater\n" {
		t.Errorf("%+v", r)
	}
}
