package integration

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started runs a sandboxed shell script that prints "ready" first, and returns a reader of its later output.
func (b *box) started(flags []string, script string) (*exec.Cmd, *bufio.Reader) {
	b.Helper()
	cmd := b.command("demesne", append(append([]string{"run"}, flags...), "--", "sh", "-c", script)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		b.Fatalf("said %q, not ready: %v: %s", line, err, errs.String())
	}
	return cmd, r
}

// TestSignalsForwarded checks that signals reach the command, and that its exit code decides the result.
func TestSignalsForwarded(t *testing.T) {
	b := newBox(t)
	heard := make(chan os.Signal, 1) // under nohup, children would ignore SIGHUP unless the test process handles it
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	for _, s := range []struct {
		sig  syscall.Signal
		name string
	}{{syscall.SIGTERM, "TERM"}, {syscall.SIGINT, "INT"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}, {syscall.SIGQUIT, "QUIT"}} {
		t.Run(s.name, func(t *testing.T) {
			cmd, out := b.started(nil, "trap 'echo got; exit 7' "+s.name+"; echo ready; while :; do sleep 0.05; done")
			cmd.Process.Signal(s.sig)
			line, _ := out.ReadString('\n')
			cmd.Wait()
			if line != "got\n" || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("said %q, exit %d", line, cmd.ProcessState.ExitCode())
			}
		})
	}
}

// TestSignalsQuit checks that Ctrl-\ silently ends a demesne that has no command to forward it to.
func TestSignalsQuit(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	job := strings.TrimSpace(b.must("run", "--background", "-c", "echo ready; exec sleep 3222"))
	defer b.must("cancel", job)
	cmd := b.command("demesne", "logs", "--follow", job)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("said %q", line)
	}
	cmd.Process.Signal(syscall.SIGQUIT)
	cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGQUIT && s.ExitStatus() != 131 || errs.Len() > 0 {
		t.Errorf("ended with %v, saying %q", cmd.ProcessState, errs.String())
	}
}

// TestSignalsEnd checks the exit code of a command that a signal ended.
func TestSignalsEnd(t *testing.T) {
	b := newBox(t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		cmd, _ := b.started(nil, "echo ready; exec sleep 60")
		cmd.Process.Signal(sig)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit %d, want %d", sig, got, code)
		}
	}
}

// TestSignalsSecondInterruptKills checks that the second Ctrl-C ends a command that ignores the first.
func TestSignalsSecondInterruptKills(t *testing.T) {
	b := newBox(t)
	cmd, out := b.started(nil, "trap 'echo got' INT; trap '' TERM; echo ready; while :; do sleep 0.05; done")
	cmd.Process.Signal(syscall.SIGINT)
	if line, _ := out.ReadString('\n'); line != "got\n" {
		t.Errorf("the first said %q", line)
	}
	cmd.Process.Signal(syscall.SIGINT)
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
		if code := cmd.ProcessState.ExitCode(); code != 137 && code != 130 {
			t.Errorf("exit %d", code)
		}
	case <-time.After(patience):
		t.Error("still there after the second interrupt")
	}
}

// TestEscapeP12Survivors checks that no process started by a command outlives it, whatever it does to hide (P12).
func TestEscapeP12Survivors(t *testing.T) {
	b := newBox(t)
	for name, script := range map[string]string{
		"setsid":     "setsid sleep 3111 & sleep 0.1",
		"daemon":     "( setsid sh -c 'trap \"\" TERM INT HUP; sleep 3111 & sleep 3111' & ) ; sleep 0.1",
		"nohup":      "nohup sleep 3111 >/dev/null 2>&1 & sleep 0.1",
		"stopped":    "sleep 3111 & kill -STOP $!; sleep 0.1",
		"fork chain": "f() { sleep 0.01; f & }; f & sleep 0.2",
	} {
		b.sh(script)
		for _, p := range descendants() {
			shown := p.String()
			eventually(t, name+": "+shown+" to be gone", func() bool { return !strings.Contains(p.cmdline(), "3111") })
		}
	}
	cmd, _ := b.started([]string{"--timeout", "1s"}, "trap '' TERM INT HUP; (setsid sleep 3111 &); echo ready; sleep 3111")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 124 {
		t.Errorf("timed out: exit %d", code)
	}
}
