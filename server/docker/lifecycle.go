package docker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/session"
)

func (s *server) startContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	started, err := s.start(r.Context(), c)
	if err != nil {
		return err
	}
	if !started {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return done(w)
}

// start starts the command of a container. started is false if it runs.
func (s *server) start(ctx context.Context, c *container) (started bool, err error) {
	c.making.Lock()
	defer c.making.Unlock()
	if c.snap().status == running {
		return false, nil
	}
	c.used = true
	sb, err := s.ensured(context.WithoutCancel(ctx), c)
	if err != nil {
		return false, err
	}
	p := c.current()
	c.out.open()
	go func() {
		res, err := s.session.Exec(s.ctx, sb.ID, session.RunOptions{
			Command: runner.Command{Argv: c.argv, Env: c.env(), Dir: c.dir(), Alone: true}, Streams: p,
		}, session.Callbacks{})
		s.ended(c, p, res, err)
	}()
	if err := p.begun(); err != nil {
		return false, c.startError(err)
	}
	c.mu.Lock()
	if c.next == p { // it may have ended already
		c.state.status, c.state.started, c.state.finished, c.state.code, c.state.err, c.state.oom = running, time.Now(), time.Time{}, 0, "", false
	} else {
		c.state.started = time.Now()
	}
	c.mu.Unlock()
	s.tell(c, "start", nil)
	s.watchHealth(c, p)
	return true, nil
}

// startError says in Docker's words why a command did not start: clients read the exit code from them.
func (c *container) startError(err error) error {
	text := err.Error()
	if statusOf(err) == http.StatusBadRequest && len(c.argv) > 0 {
		switch {
		case strings.Contains(text, "no such file"), strings.Contains(text, "not found"):
			text = "exec: " + strconv.Quote(c.argv[0]) + ": executable file not found in $PATH: " + text
		case strings.Contains(text, "permission denied"):
			text = "exec: " + strconv.Quote(c.argv[0]) + ": permission denied: " + text
		}
	}
	return fail(http.StatusBadRequest, "failed to create task for container: %s", text)
}

// ended records the end of a run.
func (s *server) ended(c *container, p *run, res *session.RunResult, err error) {
	code := 127
	if res != nil && res.Result != nil {
		code = res.ExitCode
	}
	c.mu.Lock()
	p.code = code
	c.next = c.nextRun()
	c.state.status, c.state.code, c.state.finished, c.state.stopping = exited, code, time.Now(), false
	c.state.health = healthState{}
	if res != nil && res.Result != nil {
		c.state.oom = res.Reason == runner.OOM
	}
	if err != nil {
		c.state.err = err.Error()
	}
	if !p.hasStarted() {
		c.state.status, p.failed = created, cmp.Or(err, errNotRunning)
	}
	c.out.end() // before a client sees that it may start the next run
	c.mu.Unlock()
	s.tell(c, "die", map[string]string{"exitCode": strconv.Itoa(code)})
	close(p.done)
	if c.body.HostConfig.AutoRemove {
		s.remove(c, true)
	}
	s.prepare(c) // last: it would delay what a client waits for
}

// grace is how long a command may take to end after its stop signal.
const grace = 10 * time.Second

func (s *server) stopContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	p := c.live()
	if p == nil {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if err := s.stop(r, c, p); err != nil {
		return err
	}
	return done(w)
}

// stop asks the command to end, and kills it after the grace period.
func (s *server) stop(r *http.Request, c *container, p *run) error {
	wait := grace
	if t := c.body.StopTimeout; t != nil {
		wait = time.Duration(*t) * time.Second
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("t")); err == nil {
		wait = time.Duration(n) * time.Second
	}
	sig, err := signalOf(firstOf(r.URL.Query().Get("signal"), c.body.StopSignal, c.image.StopSignal, "SIGTERM"))
	if err != nil {
		return err
	}
	p.signal(sig)
	var late <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-p.done:
		return nil
	case <-late:
	case <-r.Context().Done():
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	return nil
}

// signalOf parses a signal: its name, with or without SIG, or its number.
func signalOf(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, fail(http.StatusBadRequest, "Invalid signal: %.32s", s)
}

func (s *server) restartContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	if p := c.live(); p != nil {
		if err := s.stop(r, c, p); err != nil {
			return err
		}
	}
	if _, err := s.start(r.Context(), c); err != nil {
		return err
	}
	return done(w)
}

func (s *server) killContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	sig, err := signalOf(firstOf(r.URL.Query().Get("signal"), "SIGKILL"))
	if err != nil {
		return err
	}
	p := c.live()
	if p == nil {
		return fail(http.StatusConflict, "Cannot kill container: %s: container is not running", c.id)
	}
	if err := p.signal(sig); err != nil {
		return err
	}
	if sig == syscall.SIGKILL {
		<-p.done
	}
	s.tell(c, "kill", map[string]string{"signal": strconv.Itoa(int(sig))})
	return done(w)
}

func (s *server) waitContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	p := c.current()
	st := c.snap()
	over, code := p.done, func() int { return p.code }
	switch r.URL.Query().Get("condition") {
	case "", "not-running":
		if st.status != running {
			return answer(w, http.StatusOK, map[string]any{"StatusCode": st.code})
		}
	case "removed":
		over, code = c.removed, func() int { return c.snap().code }
	case "next-exit":
	default:
		return fail(http.StatusBadRequest, "invalid condition: %.64q", r.URL.Query().Get("condition"))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	select {
	case <-over:
	case <-c.removed:
	case <-r.Context().Done():
		return nil
	}
	return encode(w, map[string]any{"StatusCode": code()})
}

func (s *server) resizeContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	size, err := sizeOf(r)
	if err == nil {
		err = c.current().resize(size)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func sizeOf(r *http.Request) (size runner.Winsize, err error) {
	h, err1 := strconv.ParseUint(r.URL.Query().Get("h"), 10, 16)
	w, err2 := strconv.ParseUint(r.URL.Query().Get("w"), 10, 16)
	if err := errors.Join(err1, err2); err != nil {
		return size, fail(http.StatusBadRequest, "invalid size")
	}
	return runner.Winsize{Rows: uint16(h), Cols: uint16(w)}, nil
}

func (s *server) attachContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	return attach(r.Context(), w, r, c.current().process, attachmentOf(r), nil)
}

func (s *server) containerLogs(w http.ResponseWriter, r *http.Request, c *container) error {
	a := attachmentOf(r)
	if !a.out && !a.errs {
		return fail(http.StatusBadRequest, "Bad parameters: you must choose at least one stream")
	}
	read := c.out.reader(true, false)
	defer read.stop()
	defer context.AfterFunc(r.Context(), read.stop)()
	if n, err := strconv.Atoi(r.URL.Query().Get("tail")); err == nil && n >= 0 {
		read.skipTo(n)
	}
	since, _ := stamp(r.URL.Query().Get("since"))
	until, bounded := stamp(r.URL.Query().Get("until"))
	w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
	w.WriteHeader(http.StatusOK)
	to := flushed{w}
	to.Write(nil)
	for {
		f, ok := read.take(isOn(r, "follow"))
		if !ok || bounded && f.at.After(until) {
			return nil
		}
		if f.at.Before(since) || f.stream == stdout && !a.out || f.stream == stderr && !a.errs {
			continue
		}
		data := f.data
		if isOn(r, "timestamps") {
			data = append([]byte(stampText(f.at)+" "), data...)
		}
		var err error
		if c.body.Tty {
			_, err = to.Write(data)
		} else {
			err = framed(to, f.stream, data)
		}
		if err != nil {
			return nil
		}
	}
}

func (s *server) removeContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	if c.snap().status == running && !isOn(r, "force") {
		return fail(http.StatusConflict, "cannot remove container %q: container is running: stop the container before removing or force remove", "/"+c.snap().name)
	}
	if err := s.remove(c, isOn(r, "v")); err != nil {
		return err
	}
	return done(w)
}

// endSandbox removes the sandbox of a container.
func (s *server) endSandbox(c *container) error {
	c.making.Lock() // a request that makes the sandbox is done then
	defer c.making.Unlock()
	if c.sandbox == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	return s.session.Remove(ctx, c.sandbox.ID)
}

// remove ends a container. With volumes it removes its anonymous ones.
func (s *server) remove(c *container, volumes bool) error {
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		<-c.removed
		return nil
	}
	c.gone = true
	c.mu.Unlock()
	err := s.endSandbox(c)
	if p := c.live(); p != nil { // after endSandbox, which waits for a start
		<-p.done
	}
	c.out.end()
	s.mu.Lock()
	s.forget(c)
	for id, x := range s.execs {
		if x.of == c {
			delete(s.execs, id)
		}
	}
	s.mu.Unlock()
	s.settle()
	s.unmount(c, volumes)
	s.tell(c, "destroy", nil)
	close(c.removed)
	return err
}

// forget removes a container from the list. s.mu is held.
func (s *server) forget(c *container) {
	s.containers = slices.DeleteFunc(s.containers, func(o *container) bool { return o == c })
}

func (s *server) pruneContainers(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	all := slices.Clone(s.containers)
	s.mu.Unlock()
	deleted := []string{}
	for _, c := range all {
		if c.snap().status != running && f.labels(c.labels()) {
			s.remove(c, false)
			deleted = append(deleted, c.id)
		}
	}
	return answer(w, http.StatusOK, map[string]any{"ContainersDeleted": deleted, "SpaceReclaimed": 0})
}

// top lists the processes of a container, by its own ps.
func (s *server) top(w http.ResponseWriter, r *http.Request, c *container) error {
	if c.snap().status != running {
		return fail(http.StatusConflict, "container %s is not running", c.id)
	}
	var out strings.Builder
	res, err := s.session.Exec(r.Context(), c.sandbox.ID, session.RunOptions{
		Command: runner.Command{Argv: append([]string{"ps"}, strings.Fields(firstOf(r.URL.Query().Get("ps_args"), "-ef"))...)}, Stdout: &out, Stderr: io.Discard,
	}, session.Callbacks{})
	if err != nil || res.Result == nil || res.ExitCode != 0 {
		return fail(http.StatusInternalServerError, "the container's ps failed")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	titles, rows := strings.Fields(lines[0]), [][]string{}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) > len(titles) {
			f = append(f[:len(titles)-1], strings.Join(f[len(titles)-1:], " "))
		}
		rows = append(rows, f)
	}
	return answer(w, http.StatusOK, map[string]any{"Titles": titles, "Processes": rows})
}
