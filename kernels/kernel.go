package kernels

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Times that a kernel gets.
const (
	interruptEvery = time.Second            // between two interrupts
	idleGrace      = 5 * time.Second        // from the reply to the last output: ipykernel sends them on two connections
	greetEvery     = 100 * time.Millisecond // between two attempts to reach a kernel that starts
)

// interruptGrace is the time from an interrupt to the end of the execution. Tests on a slow machine change it.
var interruptGrace = 5 * time.Second

// ErrDead is the error of a kernel that has ended, or was ended because it sent an invalid message.
var ErrDead = errors.New("the kernel has ended")

// ErrStuck is the error of an execution that did not end after an interrupt. The kernel should be killed.
var ErrStuck = errors.New("the kernel does not answer an interrupt")

// Options are the parts of a kernel.
type Options struct {
	Shell, IOPub Channel // the same channel, if it carries both
	// Interrupt makes the kernel stop what it executes, as Ctrl-C does.
	Interrupt func() error
}

// Kernel is a client's connection to a running kernel. Its methods may be called concurrently; a kernel executes one
// request after another.
type Kernel struct {
	Options
	session string

	mu      sync.Mutex
	waiting map[string]*request // by the id of the request's message
	stopped int                 // interrupts that were sent
	relay   func(*Message)      // see Relay; may be nil
	err     error               // set before over is closed
	over    chan struct{}
}

// request is a request whose answer is not complete.
type request struct {
	mu     sync.Mutex // held while the fields below change
	reply  *Message
	out    *collector // nil: outputs are ignored
	idle   bool       // the kernel has sent all outputs
	gotten chan struct{}
	done   chan struct{}
}

// newKernel returns a client of the kernel at the other end of two channels, which it owns.
func newKernel(o Options) *Kernel {
	k := &Kernel{Options: o, session: rand.Text(), waiting: map[string]*request{}, over: make(chan struct{})}
	k.Interrupt = func() error {
		k.mu.Lock()
		k.stopped++
		k.mu.Unlock()
		return o.Interrupt()
	}
	go k.receive(k.Shell)
	if k.IOPub != k.Shell {
		go k.receive(k.IOPub)
	}
	return k
}

// Close ends the connection. It does not end the kernel.
func (k *Kernel) Close() { k.end(errors.New("closed")) }

// Done is closed when the connection has ended.
func (k *Kernel) Done() <-chan struct{} { return k.over }

// Relay hands every message that answers no request of this client to take, for a program that serves other clients.
// take is called by one goroutine for each channel, and delays that channel while it runs. Forward sends their requests.
func (k *Kernel) Relay(take func(*Message)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.relay = take
}

// Forward sends another client's request unchanged.
func (k *Kernel) Forward(m *Message) error { return k.Shell.Send(m) }

// receive hands a channel's messages to the requests that they answer.
func (k *Kernel) receive(c Channel) {
	for {
		m, err := c.Receive()
		if err != nil {
			k.end(err)
			return
		}
		k.mu.Lock()
		r, relay := k.waiting[m.Parent.ID], k.relay
		k.mu.Unlock()
		switch {
		case r != nil: // the kernel may have other clients, and code in the sandbox may forge messages
			r.take(m)
		case relay != nil:
			relay(m)
		}
	}
}

func (k *Kernel) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return
	}
	k.err = fmt.Errorf("%w: %w", ErrDead, err)
	close(k.over)
	k.Shell.Close()
	k.IOPub.Close()
}

func (r *request) take(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Header.Type == "status":
		var status struct {
			State string `json:"execution_state"`
		}
		if json.Unmarshal(m.Content, &status) == nil && status.State == "idle" && !r.idle {
			r.idle = true
		}
	case strings.HasSuffix(m.Header.Type, "_reply"):
		if r.reply == nil {
			r.reply = m
			close(r.gotten)
		}
	case r.out != nil:
		r.out.take(m)
	}
	select {
	case <-r.done:
	default:
		if r.idle && r.reply != nil {
			close(r.done)
		}
	}
}

// send sends a request. The caller must call forget.
func (k *Kernel) send(typ string, body any, out *collector) (r *request, forget func(), err error) {
	m, err := newMessage(k.session, typ, body)
	if err != nil {
		return nil, nil, err
	}
	r = &request{out: out, gotten: make(chan struct{}), done: make(chan struct{})}
	k.mu.Lock()
	k.waiting[m.Header.ID] = r
	k.mu.Unlock()
	forget = func() {
		k.mu.Lock()
		delete(k.waiting, m.Header.ID)
		k.mu.Unlock()
	}
	if err := k.Shell.Send(m); err != nil {
		forget()
		k.end(err)
		return nil, nil, k.death()
	}
	return r, forget, nil
}

func (k *Kernel) death() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// ask sends a request and decodes its reply's content.
func (k *Kernel) ask(ctx context.Context, typ string, body, reply any) error {
	r, forget, err := k.send(typ, body, nil)
	if err != nil {
		return err
	}
	defer forget()
	select {
	case <-r.gotten:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.over:
		return k.death()
	}
	if err := json.Unmarshal(r.reply.Content, reply); err != nil {
		return fmt.Errorf("%s: %w", typ, errMessage)
	}
	return nil
}

// Info is what a kernel says about itself.
type Info struct {
	Protocol       string `json:"protocol_version"`
	Implementation string `json:"implementation"`
	Language       struct {
		Name      string `json:"name"`
		Version   string `json:"version"`
		Extension string `json:"file_extension"`
	} `json:"language_info"`
}

// Ready waits until the kernel answers and its outputs arrive. A ZeroMQ publisher drops what it sends before a
// subscription has reached it, so Ready asks until an answer's outputs arrive as well.
func (k *Kernel) Ready(ctx context.Context) (*Info, error) {
	for {
		r, forget, err := k.send("kernel_info_request", struct{}{}, nil)
		if err != nil {
			return nil, err
		}
		select {
		case <-r.done:
		case <-time.After(greetEvery):
		case <-ctx.Done():
			forget()
			return nil, context.Cause(ctx)
		case <-k.over:
			forget()
			return nil, k.death()
		}
		forget()
		info := &Info{}
		r.mu.Lock()
		complete := r.idle && r.reply != nil
		r.mu.Unlock()
		if !complete {
			continue
		}
		if err := json.Unmarshal(r.reply.Content, info); err != nil {
			return nil, fmt.Errorf("kernel_info: %w", errMessage)
		}
		return info, nil
	}
}

// Complete returns the texts that may replace code[start:end] at the cursor, whose position is in bytes. A kernel may return
// any texts: they are untrusted.
func (k *Kernel) Complete(ctx context.Context, code string, cursor int) (matches []string, start, end int, err error) {
	var reply struct {
		Matches []string `json:"matches"`
		Start   int      `json:"cursor_start"`
		End     int      `json:"cursor_end"`
	}
	cursor = min(max(cursor, 0), len(code))
	err = k.ask(ctx, "complete_request", map[string]any{"code": code, "cursor_pos": utf8.RuneCountInString(code[:cursor])}, &reply)
	if err != nil {
		return nil, cursor, cursor, err
	}
	start, end = offset(code, reply.Start), offset(code, reply.End)
	if start > end {
		return nil, cursor, cursor, nil
	}
	return reply.Matches[:min(len(reply.Matches), maxMatches)], start, end, nil
}

// maxMatches bounds the texts of a completion.
const maxMatches = 1000

// offset returns the byte at which the character of that number begins: the protocol counts characters.
func offset(s string, characters int) int {
	for i := range s {
		if characters--; characters < 0 {
			return i
		}
	}
	return len(s)
}

// Inspect returns what the kernel tells about the name at the cursor, whose position is in bytes; nil: it knows none.
// With detail it tells more, such as the source.
func (k *Kernel) Inspect(ctx context.Context, code string, cursor int, detail bool) (Bundle, error) {
	var reply struct {
		Found bool   `json:"found"`
		Data  Bundle `json:"data"`
	}
	cursor = min(max(cursor, 0), len(code))
	level := 0
	if detail {
		level = 1
	}
	body := map[string]any{"code": code, "cursor_pos": utf8.RuneCountInString(code[:cursor]), "detail_level": level}
	if err := k.ask(ctx, "inspect_request", body, &reply); err != nil || !reply.Found {
		return nil, err
	}
	return reply.Data, nil
}

// IsComplete reports whether code may be executed as it is: "complete", "incomplete", "invalid", or "unknown". indent is
// what the next line of incomplete code should begin with. A kernel that does not answer gives ctx's end.
func (k *Kernel) IsComplete(ctx context.Context, code string) (status, indent string, err error) {
	var reply struct {
		Status string `json:"status"`
		Indent string `json:"indent"`
	}
	if err := k.ask(ctx, "is_complete_request", map[string]any{"code": code}, &reply); err != nil {
		return "unknown", "", err
	}
	switch reply.Status {
	case "complete", "invalid":
		return reply.Status, "", nil
	case "incomplete":
		if strings.Trim(reply.Indent, " \t") != "" || len(reply.Indent) > maxIndent {
			reply.Indent = ""
		}
		return reply.Status, reply.Indent, nil
	}
	return "unknown", "", nil
}

const maxIndent = 200 // bytes

// Execution is the request to execute code.
type Execution struct {
	Code    string
	Timeout time.Duration // 0: no limit. At the limit the kernel is interrupted, and keeps its state
	Silent  bool          // no history, no count
	Emit    func(Output)  // called for each output as it arrives; may be nil. It delays the kernel while it runs

	// Messages is called for each message of the execution but the reply, as it arrives; may be nil. It delays the kernel.
	Messages func(*Message)
}

// Execute executes code and returns its outputs. An exception of the code is not an error: see [Result.Error]. The error is
// [ErrDead] if the kernel ended, with the outputs so far, and [ErrStuck] if it did not react to an interrupt. If ctx
// ends, the code is interrupted too.
func (k *Kernel) Execute(ctx context.Context, e Execution) (*Result, error) {
	for n := 0; ; n++ {
		before := k.interrupts()
		r, err := k.execute(ctx, e)
		if err != nil || !r.refused || n == refusals || k.interrupts() != before {
			return r, err
		}
		time.Sleep(refusedWait)
	}
}

func (k *Kernel) interrupts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopped
}

// A kernel may refuse code for a while after an error: tslab does so for 0.2 s. The reply is the one that IRkernel gives to
// code that it has executed until an interrupt, which must not run again.
const (
	refusals    = 10
	refusedWait = 50 * time.Millisecond
)

func (k *Kernel) execute(ctx context.Context, e Execution) (*Result, error) {
	out := newCollector(e.Emit)
	out.raw = e.Messages
	body := map[string]any{
		"code": e.Code, "silent": e.Silent, "store_history": !e.Silent, "user_expressions": struct{}{},
		"allow_stdin": false, "stop_on_error": false, // no other request waits behind this one
	}
	r, forget, err := k.send("execute_request", body, out)
	if err != nil {
		return &out.result, err
	}
	defer forget()
	limited := ctx
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, e.Timeout)
		defer cancel()
	}
	timedOut := false
	err = k.wait(limited, r)
	if err != nil && !errors.Is(err, ErrDead) {
		timedOut = ctx.Err() == nil
		if err = k.stop(r); err == nil && !timedOut {
			err = context.Cause(ctx)
		}
	}
	return r.result(timedOut), err
}

// wait waits for the reply and for the outputs before it.
func (k *Kernel) wait(ctx context.Context, r *request) error {
	select {
	case <-r.gotten:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.over:
		return k.death()
	}
	select {
	case <-r.done:
	case <-time.After(idleGrace):
	case <-ctx.Done(): // the code has ended in any case
	case <-k.over:
	}
	return nil
}

// stop interrupts the kernel until the request has an answer. It repeats the interrupt, because code may swallow one.
func (k *Kernel) stop(r *request) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), interruptGrace, ErrStuck)
	defer cancel()
	for {
		if err := k.Interrupt(); err != nil {
			select {
			case <-k.over:
				return k.death()
			default:
			}
			return fmt.Errorf("%w: %w", ErrStuck, err)
		}
		again, cancel := context.WithTimeoutCause(ctx, interruptEvery, errAgain)
		err := k.wait(again, r)
		cancel()
		if !errors.Is(err, errAgain) {
			return err
		}
	}
}

var errAgain = errors.New("interrupt again")

// result returns a copy of what has been collected: late messages do not change it.
func (r *request) result(timedOut bool) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.out.result
	r.out = nil
	res.TimedOut = timedOut
	if r.reply == nil {
		return &res
	}
	var reply struct {
		Count  int    `json:"execution_count"`
		Status string `json:"status"`
		content
	}
	if json.Unmarshal(r.reply.Content, &reply) == nil {
		res.Count = max(res.Count, reply.Count)
		res.refused = reply.Status == "aborted" || reply.Status == "abort"
		if reply.Status != "ok" && res.Error == nil {
			res.Error = &Error{Type: short(cmp.Or(reply.Ename, reply.Status)), Message: short(reply.Evalue)}
		}
	}
	return &res
}
