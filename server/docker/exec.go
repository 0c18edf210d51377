package docker

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// execsMost bounds the commands of exec that a container remembers.
const execsMost = 256

// execution is a further command in a container.
type execution struct {
	*process
	id   string
	of   *container
	body execBody
	cmd  runner.Command

	weight int

	mu      sync.Mutex
	begun   bool
	running bool
	code    *int
}

type execBody struct {
	AttachStdin, AttachStdout, AttachStderr, Tty, Privileged bool
	Env, Cmd                                                 []string
	User, WorkingDir                                         string
}

func (s *server) createExec(w http.ResponseWriter, r *http.Request, c *container) error {
	var b execBody
	if err := read(r, &b); err != nil {
		return err
	}
	switch {
	case b.Privileged:
		return fail(http.StatusForbidden, "privileged commands: a container has no more rights than the sandbox that asked for it")
	case len(b.Cmd) == 0:
		return fail(http.StatusBadRequest, "No exec command specified")
	case c.snap().status != running:
		return fail(http.StatusConflict, "container %s is not running", c.id)
	}
	user, err := userOf(b.User)
	if err != nil {
		return err
	}
	x := &execution{process: newProcess(newJournal(false), b.Tty, b.AttachStdin), id: newID(), of: c, body: b, weight: weight(b)}
	x.cmd = runner.Command{Argv: b.Cmd, Env: append(c.env(), b.Env...), Dir: firstOf(b.WorkingDir, c.dir()), User: user}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, old := range s.execs {
		if (len(s.execs) >= execsMost || s.keeps(x.weight) != nil) && old.over() {
			delete(s.execs, id)
		}
	}
	if len(s.execs) >= execsMost {
		return fail(http.StatusConflict, "%d commands wait or run already", execsMost)
	}
	if err := s.keeps(x.weight); err != nil {
		return err
	}
	s.execs[x.id] = x
	return answer(w, http.StatusCreated, map[string]string{"Id": x.id})
}

// over reports whether a command has ended.
func (x *execution) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.code != nil
}

// userOf parses a user in numbers.
func userOf(s string) (*runner.User, error) {
	switch s {
	case "":
		return nil, nil
	case "root", "0:0", "root:root":
		return &runner.User{}, nil
	}
	uid, gid, both := cut(s, ':')
	if !both {
		gid = "0"
	}
	u, uok := runner.ParseID(uid)
	g, gok := runner.ParseID(gid)
	if !uok || !gok {
		return nil, fail(http.StatusBadRequest, "user %.64q: only numbers, and root", s)
	}
	return &runner.User{UID: u, GID: g}, nil
}

func cut(s string, sep byte) (before, after string, found bool) {
	for i := range len(s) {
		if s[i] == sep {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func (s *server) findExec(r *http.Request) (*execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.execs[r.PathValue("id")]; x != nil {
		return x, nil
	}
	return nil, fail(http.StatusNotFound, "No such exec instance: %.128s", r.PathValue("id"))
}

func (s *server) startExec(w http.ResponseWriter, r *http.Request) error {
	x, err := s.findExec(r)
	if err != nil {
		return err
	}
	var b struct {
		Detach      bool
		ConsoleSize []uint16
	}
	if err := read(r, &b); err != nil {
		return err
	}
	x.process.mu.Lock()
	if len(b.ConsoleSize) == 2 && b.ConsoleSize[0] > 0 && b.ConsoleSize[1] > 0 {
		x.size = runner.Winsize{Rows: b.ConsoleSize[0], Cols: b.ConsoleSize[1]}
	}
	x.process.mu.Unlock()
	x.mu.Lock()
	again := x.begun
	x.begun = true
	x.mu.Unlock()
	if again {
		return fail(http.StatusConflict, "exec %s was started already", x.id)
	}
	if b.Detach {
		if err := s.beginExec(x); err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
	a := attachment{in: x.body.AttachStdin, out: x.body.AttachStdout, errs: x.body.AttachStderr, stream: true}
	return attach(r.Context(), w, r, x.process, a, func() { s.beginExec(x) })
}

// beginExec starts a command, and returns when it runs, or why it does not.
func (s *server) beginExec(x *execution) error {
	x.out.open()
	x.mu.Lock()
	x.running = true
	x.mu.Unlock()
	over := make(chan error, 1)
	go func() {
		res, err := s.session.Exec(s.ctx, x.of.sandbox.ID, session.RunOptions{Command: x.cmd, Streams: x.process}, session.Callbacks{})
		code := 126
		if e := (*ipc.Error)(nil); errors.As(err, &e) && e.Code == ipc.CodeCommandNotFound {
			code = 127
		}
		if res != nil && res.Result != nil {
			code = res.ExitCode
		} else if err != nil {
			x.out.write(stderr, []byte("OCI runtime exec failed: "+err.Error()+"\r\n"))
		}
		x.mu.Lock()
		x.running, x.code = false, &code
		x.mu.Unlock()
		x.out.end()
		over <- err
	}()
	select {
	case <-x.started:
	case err := <-over:
		if err != nil {
			return fail(statusOf(err), "exec failed: %v", err)
		}
	}
	return nil
}

func (s *server) resizeExec(w http.ResponseWriter, r *http.Request) error {
	x, err := s.findExec(r)
	if err != nil {
		return err
	}
	size, err := sizeOf(r)
	if err == nil {
		err = x.resize(size)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *server) inspectExec(w http.ResponseWriter, r *http.Request) error {
	x, err := s.findExec(r)
	if err != nil {
		return err
	}
	return answerHeld(w, http.StatusOK, &x.mu, func() (any, error) {
		return map[string]any{
			"ID": x.id, "ContainerID": x.of.id, "Running": x.running, "ExitCode": x.code, "Pid": 0, "OpenStdin": x.body.AttachStdin, "OpenStdout": x.body.AttachStdout,
			"OpenStderr": x.body.AttachStderr, "CanRemove": false, "DetachKeys": "",
			"ProcessConfig": map[string]any{"tty": x.body.Tty, "entrypoint": x.body.Cmd[0], "arguments": x.body.Cmd[1:], "privileged": false, "user": x.body.User},
		}, nil
	})
}

// runIn executes a command in a container, and returns its exit code and the end of what it wrote.
func (s *server) runIn(ctx context.Context, c *container, argv []string) (code int, out string, err error) {
	res, err := s.session.Exec(ctx, c.sandbox.ID, session.RunOptions{Command: runner.Command{Argv: argv, Env: c.env(), Dir: c.dir()}}, session.Callbacks{})
	if err != nil || res.Result == nil {
		return -1, "", err
	}
	text := res.Stdout.Text + res.Stderr.Text
	return res.ExitCode, text[max(0, len(text)-4096):], nil
}
