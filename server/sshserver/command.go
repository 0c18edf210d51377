package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/server/sshcmd"
	"demesne/session"
)

// Bounds of what a client sends before its command starts.
const (
	mostVariables = 64
	mostValue     = 4 << 10
)

// command is one session channel: a shell, a command or a subsystem. It is the Streams of its command.
type command struct {
	of      *connection
	channel ssh.Channel
	env     []string
	size    *runner.Winsize // as the command starts; nil: no terminal
	agent   bool            // the client offered its agent
	begun   bool            // env, size and agent change no more

	mu      sync.Mutex
	process session.Process // nil until it started
	resized *runner.Winsize // size that was asked for before

	in, out, errs *os.File // this process's ends
	theirs        []*os.File
}

// session serves the requests of a session channel.
func (c *connection) session(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &command{of: c, channel: channel}
	for r := range requests {
		ok := false
		switch r.Type {
		case "exec", "shell", "subsystem":
			if ok = !x.begun; ok {
				x.begun = true
				ok = x.begin(ctx, r)
			}
		case "auth-agent-req@openssh.com":
			if ok = c.allow.Agent; !ok {
				c.say("agent forwarding is refused: " + sshcmd.ForwardAgent + " allows it")
			}
			if ok = ok && !x.begun; ok {
				x.agent = true
			}
		default:
			ok = x.set(r)
		}
		if r.WantReply {
			r.Reply(ok, nil)
		}
	}
}

// begin starts what a request asks for. The answer to the request does not wait for it.
func (x *command) begin(ctx context.Context, r *ssh.Request) bool {
	var word struct{ Text string }
	if r.Type != "shell" && (ssh.Unmarshal(r.Payload, &word) != nil || strings.ContainsRune(word.Text, 0)) {
		return false
	}
	cmd := runner.Command{Argv: []string{"/bin/sh", "-c", word.Text}, Env: x.env}
	switch r.Type {
	case "subsystem":
		if word.Text != "sftp" {
			return false
		}
		go x.sftp(ctx)
		return true
	case "shell":
		cmd.Argv, cmd.Else = []string{"/bin/bash"}, [][]string{{"/bin/sh"}}
	}
	go x.run(ctx, cmd)
	return true
}

// set serves a request about the terminal, the environment or a signal.
func (x *command) set(r *ssh.Request) bool {
	switch r.Type {
	case "pty-req":
		var q struct {
			Term                        string
			Cols, Rows, WidthPx, HighPx uint32
			Modes                       string
		}
		if ssh.Unmarshal(r.Payload, &q) != nil || !isValue(q.Term) || x.begun {
			return false
		}
		x.size = winsize(q.Cols, q.Rows)
		x.env = append(x.env, "TERM="+q.Term)
		return true
	case "window-change":
		var q struct{ Cols, Rows, WidthPx, HighPx uint32 }
		return ssh.Unmarshal(r.Payload, &q) == nil && x.size != nil && x.resize(winsize(q.Cols, q.Rows))
	case "env":
		var q struct{ Name, Value string }
		if ssh.Unmarshal(r.Payload, &q) != nil || !isLocale(q.Name) || !isValue(q.Value) || len(x.env) >= mostVariables || x.begun {
			return false
		}
		x.env = append(x.env, q.Name+"="+q.Value)
		return true
	case "signal":
		var q struct{ Name string }
		if ssh.Unmarshal(r.Payload, &q) != nil {
			return false
		}
		sig, p := unix.SignalNum("SIG"+q.Name), x.started()
		return sig != 0 && p != nil && p.Signal(sig) == nil
	}
	return false
}

// isLocale reports whether a variable is among those that a client may set. Others could change what a program of the
// sandbox loads or trusts.
func isLocale(name string) bool {
	rest, locale := strings.CutPrefix(name, "LC_")
	return name == "LANG" || locale && len(rest) <= 64 && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

func isValue(s string) bool { return len(s) <= mostValue && !strings.ContainsRune(s, 0) }

// winsize bounds what a client sends. Without a size it is that of old terminals.
func winsize(cols, rows uint32) *runner.Winsize {
	if cols == 0 || rows == 0 {
		return &runner.Winsize{Rows: 24, Cols: 80}
	}
	return &runner.Winsize{Rows: uint16(min(rows, 0xffff)), Cols: uint16(min(cols, 0xffff))}
}

// resize changes the size of the terminal, or the size that it will have.
func (x *command) resize(size *runner.Winsize) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.process == nil {
		x.resized = size
		return true
	}
	return x.process.Resize(*size) == nil
}

func (x *command) started() session.Process {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.process
}

// run runs a command to its end, and sends that to the client.
func (x *command) run(ctx context.Context, cmd runner.Command) {
	defer x.channel.Close()
	if x.agent {
		variable, err := x.of.agent()
		if err != nil {
			x.complain(fmt.Errorf("forward agent: %w", err))
		} else {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	done, err := x.of.service.Exec(ctx, x.of.box.ID, session.RunOptions{Command: cmd, Streams: x}, session.Callbacks{})
	if err != nil {
		x.complain(err)
	}
	code := uint32(failed)
	var e *ipc.Error
	switch {
	case errors.As(err, &e) && e.Code == ipc.CodeCommandNotFound:
		code = 127
	case errors.As(err, &e) && e.Code == ipc.CodeNotExecutable:
		code = 126
	case done != nil && done.Result != nil:
		x.end(done.Result)
		return
	}
	x.status(code)
}

// end sends the end of a command: the signal that killed it, or its exit code.
func (x *command) end(r *runner.Result) {
	if r.Restarted && len(r.MissingSecrets) > 0 {
		x.complain(fmt.Errorf("the sandbox was started again without the secrets %s", strings.Join(r.MissingSecrets, ", ")))
	}
	switch r.Reason {
	case runner.Exited:
	case runner.Signaled:
		name, ok := strings.CutPrefix(unix.SignalName(syscall.Signal(r.Signal)), "SIG")
		if ok {
			x.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal   string
				Core     bool
				Message  string
				Language string
			}{name, false, "", ""}))
			return
		}
	default:
		x.complain(fmt.Errorf("%s: %s", r.Reason, r.Detail))
	}
	x.status(uint32(r.ExitCode))
}

func (x *command) status(code uint32) {
	x.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}

// complain writes a line of demesne's own to the client's stderr.
func (x *command) complain(err error) {
	end := "\n"
	if x.size != nil {
		end = "\r\n"
	}
	io.WriteString(x.channel.Stderr(), "demesne: ssh: "+text.SafeLine(err.Error())+end)
}

// sftp serves the subsystem to its end.
func (x *command) sftp(ctx context.Context) {
	defer x.channel.Close()
	if err := serveFiles(ctx, x.of.box, x.channel); err != nil {
		x.complain(err)
		x.status(failed)
		return
	}
	x.status(0)
}
