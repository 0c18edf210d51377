package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/server"
	"demesne/server/e2b/envd"
	"demesne/session"
)

// Times of a process's streams.
const (
	stalled   = 30 * time.Second       // a reader that takes no output for so long is left behind
	lastWords = 100 * time.Millisecond // from a process's end to the end of its output, while others hold the pipe
	keptEnd   = 30 * time.Second       // how long the end of a process can be asked for
	dying     = 200 * time.Millisecond // how long an answer waits for the end of a process that was killed
)

// chunk is the size of one piece of output.
const chunk = 32 << 10

// process is a command in a sandbox. It goes on when its readers leave.
type process struct {
	of   *entry
	dead chan struct{} // closed when the process has ended; its output may go on
	info *envd.ProcessInfo
	run  server.Process
	pty  *os.File // nil: pipes

	in    *os.File   // stdin; nil: it has none
	input sync.Mutex // held while stdin is written
	shut  bool       // stdin is closed

	mu      sync.Mutex
	readers []*reader
	end     *envd.ProcessEvent // nil: it runs
	ended   time.Time
	exited  bool  // the output goes on until lastWords are over
	lost    error // the end is unknown: its readers get this error instead
	failed  bool  // it ended with another status than 0
}

// reader receives the events of a process.
type reader struct {
	events chan *envd.ProcessEvent // closed after the end
	gone   chan struct{}           // closed when the reader leaves, or is left behind
	once   sync.Once
}

func (r *reader) leave() { r.once.Do(func() { close(r.gone) }) }

// listen returns a reader of the events from now on.
func (p *process) listen() *reader {
	r := &reader{events: make(chan *envd.ProcessEvent, 16), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		if p.lost == nil {
			r.events <- p.end
		}
		close(r.events)
		return r
	}
	p.readers = append(p.readers, r)
	return r
}

// publish passes an event to all readers. The slowest one bounds the speed of the process, as a pipe's reader does.
func (p *process) publish(ev *envd.ProcessEvent) {
	p.mu.Lock()
	all := slices.Clone(p.readers)
	p.mu.Unlock()
	for _, r := range all {
		select {
		case r.events <- ev:
			continue
		default:
		}
		late := time.NewTimer(stalled)
		select {
		case r.events <- ev:
		case <-r.gone:
			p.drop(r)
		case <-late.C:
			p.drop(r)
			r.leave() // its stream fails: it lacks an end. The other stream may be sending to events
		}
		late.Stop()
	}
}

func (p *process) drop(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers = slices.DeleteFunc(p.readers, func(o *reader) bool { return o == r })
}

// stream passes one stream of output on, until all who hold it have closed it, or the process has ended and lastWords are
// over. What its children write then is read and dropped, so that they can go on.
func (p *process) stream(f *os.File, event func([]byte) *envd.ProcessEvent_DataEvent) {
	buf := make([]byte, chunk)
	from := p.run.Shown(fsutil.Rest(f))
	defer from.Close()
	for {
		p.mu.Lock()
		if p.exited {
			f.SetReadDeadline(time.Now().Add(lastWords))
		}
		p.mu.Unlock()
		n, err := from.Read(buf)
		if n > 0 {
			ev := &envd.ProcessEvent{Event: &envd.ProcessEvent_Data{Data: event(slices.Clone(buf[:n]))}}
			p.publish(ev)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			f.SetReadDeadline(time.Time{})
			go func() {
				io.Copy(io.Discard, f)
				f.Close()
			}()
			return
		case err != nil:
			f.Close()
			return
		}
	}
}

// wait waits for the end of the process and of its streams, and publishes it.
func (p *process) wait(files []*os.File, streams *sync.WaitGroup) {
	res, err := p.run.Wait(context.Background())
	p.mu.Lock()
	p.exited, p.lost, p.failed = true, lostBy(res, err), err != nil || res.ExitCode != 0
	close(p.dead)
	for _, f := range files {
		f.SetReadDeadline(time.Now().Add(lastWords)) // a terminal may have no deadlines, and ends by itself
	}
	p.mu.Unlock()
	streams.Wait()
	if p.in != nil {
		p.in.SetWriteDeadline(time.Now()) // ends a write that its children do not read
	}
	p.closeStdin()
	end := &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: ending(res)}}
	gone := p.of.removed() || p.lost != nil
	p.mu.Lock()
	p.end, p.ended = end, time.Now()
	all := p.readers
	p.readers = nil
	p.mu.Unlock()
	for _, r := range all {
		if gone {
			close(r.events)
			continue
		}
		go func() {
			late := time.NewTimer(stalled)
			defer late.Stop()
			select {
			case r.events <- end:
			case <-r.gone:
			case <-late.C:
			}
			close(r.events)
		}()
	}
}

// lostBy returns why the end of a process is unknown: its sandbox ended, or the runner. That is no exit of the process.
func lostBy(res *runner.Result, err error) error {
	if err == nil && res.Reason == runner.Lost {
		err = errors.New(res.Detail)
	}
	if err != nil {
		return fmt.Errorf("the process was lost: %w", err)
	}
	return nil
}

// ending describes the end of a process. An end other than status 0 always has an error, which the SDKs show. It is nil for
// a process without a result.
func ending(res *runner.Result) *envd.ProcessEvent_EndEvent {
	if res == nil {
		return nil
	}
	say := func(code int32, exited bool, status string) *envd.ProcessEvent_EndEvent {
		e := &envd.ProcessEvent_EndEvent{ExitCode: code, Exited: exited, Status: status}
		if code != 0 {
			e.Error = &status
		}
		return e
	}
	switch {
	case res.Reason == runner.Exited:
		return say(int32(res.ExitCode), true, fmt.Sprintf("exit status %d", res.ExitCode))
	case res.Reason == runner.Signaled && syscall.Signal(res.Signal) == syscall.SIGKILL, res.Reason == runner.TimedOut:
		return say(-1, false, "signal: killed")
	case res.Reason == runner.Signaled:
		return say(-1, false, "signal: "+syscall.Signal(res.Signal).String())
	}
	return say(-1, false, string(res.Reason)+": "+res.Detail)
}

// succeeded reports whether the process ended with status 0.
func (p *process) succeeded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited && !p.failed
}

// await waits for the end of a process that was killed, so that a client finds it gone after the answer.
func (p *process) await() {
	select {
	case <-p.dead:
	case <-time.After(dying):
	}
}

func (p *process) closeStdin() {
	p.input.Lock()
	defer p.input.Unlock()
	if p.in != nil && !p.shut {
		p.shut = true
		p.in.Close()
	}
}

// write sends input to the process. It waits until the process has read it, or has ended.
func (p *process) write(in *envd.ProcessInput) error {
	p.input.Lock()
	defer p.input.Unlock()
	to, data := p.in, in.GetStdin()
	if in.GetPty() != nil {
		to, data = p.pty, in.GetPty()
	}
	if to == nil {
		return fmt.Errorf("%w: the process has no such input", session.ErrInvalid)
	}
	if _, err := to.Write(data); err != nil {
		return fmt.Errorf("write input: %w", err)
	}
	return nil
}

// procTable has the processes of a sandbox.
type procTable struct {
	mu  sync.Mutex
	all []*process
}

var errNoProcess = errors.New("process not found")

// add adds a process, and forgets those that ended some time ago.
func (t *procTable) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *process) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.end != nil && (time.Since(o.ended) > keptEnd || o.info.Pid == p.info.Pid)
	})
	t.all = append(t.all, p)
}

// find returns the process that s names. Without old it must run.
func (t *procTable) find(s *envd.ProcessSelector, old bool) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range slices.Backward(t.all) {
		match := p.info.Pid == s.GetPid() && s.GetPid() != 0
		if tag, ok := s.GetSelector().(*envd.ProcessSelector_Tag); ok {
			match = p.info.Tag != nil && *p.info.Tag == tag.Tag
		}
		if match && p.known(old) {
			return p, nil
		}
	}
	return nil, errNoProcess
}

// known reports whether the process runs. With old it is known for some time after the end of its output.
func (p *process) known(old bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.exited || old && (p.end == nil || time.Since(p.ended) < keptEnd)
}

// list returns the processes that run.
func (t *procTable) list() (all []*envd.ProcessInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if p.known(false) {
			all = append(all, p.info)
		}
	}
	return all
}
