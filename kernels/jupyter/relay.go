package jupyter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/runner"
)

// maxRequests bounds how many requests are remembered. Outputs of older ones are dropped.
const maxRequests = 4096

// relay passes messages between Jupyter's clients and the kernel in the sandbox.
//
// A client's request keeps its header, so that the kernel's answers name it. What the kernel answers is untrusted: it
// gets the header of the request that it names from here, and is dropped if the request is unknown. A request has one
// answer, which goes to the client that asked.
type relay struct {
	clients *clients
	safe    bool // make outputs harmless for a browser
	end     func(error)

	ready  chan struct{} // closed when the fields below are set
	kernel *kernels.Running
	info   json.RawMessage // content of the kernel's kernel_info_reply
	stdin  kernels.Channel // nil: the kernel asks for no input

	mu       sync.Mutex
	requests map[string]*request // by id
	order    []string            // of requests
	notice   string              // for the first execution's output
}

// request is a client's request.
type request struct {
	header   kernels.Header
	peer     *kernels.Peer
	answered bool
}

func newRelay(safe bool, notice string, end func(error)) *relay {
	return &relay{safe: safe, notice: notice, end: end, ready: make(chan struct{}), requests: map[string]*request{}}
}

// errShutdown and errRestart are the causes of an end that a client asked for.
var errShutdown, errRestart = errors.New("shutdown"), errors.New("restart")

// begin connects the kernel. Requests of clients have waited for it.
func (r *relay) begin(k *kernels.Running) {
	r.kernel = k
	info := askInfo(k)
	k.Relay(r.answer)
	r.info = info
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if r.stdin, _ = k.Stdin(ctx); r.stdin != nil {
		go r.questions()
	}
	close(r.ready)
}

// askInfo returns the whole content of a kernel's kernel_info_reply; nil: it does not answer. Nothing else may use the
// kernel meanwhile.
func askInfo(k *kernels.Running) json.RawMessage {
	own, got := newHeader("kernel_info_request"), make(chan json.RawMessage, 1)
	k.Relay(func(m *kernels.Message) {
		if m.Parent.ID == own.ID && m.Header.Type == "kernel_info_reply" {
			select {
			case got <- m.Content:
			default:
			}
		}
	})
	defer k.Relay(nil)
	k.Forward(&kernels.Message{Header: own, Metadata: empty, Content: empty})
	select {
	case info := <-got:
		return info
	case <-k.Ended():
	case <-time.After(10 * time.Second):
	}
	return nil
}

var empty = json.RawMessage("{}")

func newHeader(typ string) kernels.Header {
	return kernels.Header{
		ID: rand.Text(), Session: "demesne", Username: "demesne", Type: typ, Version: "5.4",
		Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
}

func (r *relay) remember(q *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) >= maxRequests {
		delete(r.requests, r.order[0])
		r.order = r.order[1:]
	}
	r.requests[q.header.ID] = q
	r.order = append(r.order, q.header.ID)
}

// request takes a message of a client.
func (r *relay) request(from *kernels.Peer, channel string, m *kernels.Message) {
	<-r.ready
	q := &request{header: m.Header, peer: from}
	switch m.Header.Type {
	case "shutdown_request":
		var c struct {
			Restart bool `json:"restart"`
		}
		json.Unmarshal(m.Content, &c)
		r.reply(q, "shutdown_reply", map[string]any{"status": "ok", "restart": c.Restart})
		if c.Restart {
			r.end(errRestart)
		}
		r.end(errShutdown)
		return
	case "interrupt_request":
		r.kernel.Interrupt()
		r.reply(q, "interrupt_reply", map[string]any{"status": "ok"})
		return
	}
	if channel == "stdin" {
		if r.stdin != nil && m.Header.Type == "input_reply" {
			r.stdin.Send(m)
		}
		return
	}
	if channel == "control" && m.Header.Type != "kernel_info_request" {
		return // debuggers, and what later protocols have
	}
	if channel == "control" {
		r.reply(q, "kernel_info_reply", r.info)
		return
	}
	if m.Header.Type == "execute_request" {
		r.greet(m)
		if r.stdin == nil {
			m.Content = without(m.Content, "allow_stdin")
		}
	}
	if r.safe && strings.HasPrefix(m.Header.Type, "comm_") && m.Header.Type != "comm_info_request" {
		return
	}
	r.remember(q)
	r.kernel.Forward(m)
}

// without returns a JSON object with a member set to false.
func without(content json.RawMessage, name string) json.RawMessage {
	var c map[string]json.RawMessage
	if json.Unmarshal(content, &c) != nil || c == nil {
		return content
	}
	c[name] = json.RawMessage("false")
	content, _ = json.Marshal(c)
	return content
}

// reply answers a request in place of the kernel.
func (r *relay) reply(q *request, typ string, content any) {
	r.status(q, "busy")
	if raw, err := json.Marshal(content); err == nil {
		q.peer.Send(&kernels.Message{Header: newHeader(typ), Parent: q.header, Metadata: empty, Content: raw})
	}
	r.status(q, "idle")
}

func (r *relay) status(q *request, state string) {
	r.clients.publish(&kernels.Message{Header: newHeader("status"), Parent: q.header, Metadata: empty,
		Content: json.RawMessage(`{"execution_state":"` + state + `"}`)})
}

// greet shows the notice in the output of the first execution.
func (r *relay) greet(m *kernels.Message) {
	r.mu.Lock()
	notice := r.notice
	r.notice = ""
	r.mu.Unlock()
	if notice != "" {
		r.say(m.Header, notice)
	}
}

// say adds a line of demesne's to the output of a request.
func (r *relay) say(parent kernels.Header, line string) {
	content, _ := json.Marshal(map[string]string{"name": "stderr", "text": line})
	r.clients.publish(&kernels.Message{Header: newHeader("stream"), Parent: parent, Metadata: empty, Content: content})
}

// questions passes the kernel's questions for input on to the clients whose code asks.
func (r *relay) questions() {
	for {
		m, err := r.stdin.Receive()
		if err != nil {
			return
		}
		q, _ := r.asked(m)
		if q == nil || m.Header.Type != "input_request" {
			continue
		}
		if p := r.clients.twin(q.peer, "stdin"); p != nil {
			m.Parent = q.header
			p.Send(m)
		}
	}
}

// outputs are the types of messages that a kernel may publish. The value is whether only a trusted one may.
var outputs = map[string]bool{
	"stream": false, "display_data": false, "update_display_data": false, "execute_input": false, "execute_result": false,
	"error": false, "status": false, "clear_output": false, "comm_open": true, "comm_msg": true, "comm_close": true,
}

// answer takes a message of the kernel, which is untrusted.
func (r *relay) answer(m *kernels.Message) {
	q, first := r.asked(m)
	if q == nil {
		return
	}
	m.Parent = q.header
	if r.safe && !harmless(m) {
		return
	}
	if strings.HasSuffix(m.Header.Type, "_reply") {
		if first {
			q.peer.Send(m)
		}
		return
	}
	if trusted, known := outputs[m.Header.Type]; known && !(trusted && r.safe) {
		r.clients.publish(m)
	}
}

// asked returns the request that a message names. first is whether it is the answer.
func (r *relay) asked(m *kernels.Message) (q *request, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q = r.requests[m.Parent.ID]; q == nil {
		return nil, false
	}
	want := strings.TrimSuffix(q.header.Type, "_request") + "_reply"
	if first = m.Header.Type == want && !q.answered; first {
		q.answered = true
	}
	return q, first
}

// signals interrupts the kernel or ends it.
func (r *relay) signals(ch <-chan os.Signal, end func(error)) {
	for sig := range ch {
		switch sig {
		case syscall.SIGPIPE:
		case syscall.SIGINT:
			select {
			case <-r.ready:
				r.kernel.Interrupt()
			default: // Jupyter interrupts a kernel that is busy starting
			}
		default:
			end(errGone)
		}
	}
}

// wait waits for the end of the kernel, and returns the exit code. keep is whether the sandbox may get another kernel.
func (r *relay) wait(ctx context.Context, f *console, k *code.Session) (code int, keep bool) {
	select {
	case <-ctx.Done():
		return 0, errors.Is(context.Cause(ctx), errRestart)
	case <-r.kernel.Ended():
	}
	d := k.EndOf(r.kernel)
	if res := r.kernel.Result(); res != nil && res.Reason == runner.Exited && res.ExitCode == 0 {
		return 0, true // the code asked for it
	}
	f.say("the kernel ended: " + d.Reason)
	if said := strings.TrimSpace(r.kernel.Said()); said != "" {
		f.say("it said: " + text.SafeLine(said[strings.LastIndexByte(said, '\n')+1:]))
	}
	r.mu.Lock()
	var running []kernels.Header
	for _, id := range r.order {
		if q := r.requests[id]; q != nil && !q.answered && q.header.Type == "execute_request" {
			running = append(running, q.header)
			break
		}
	}
	r.mu.Unlock()
	for _, h := range running {
		r.say(h, "demesne: the kernel ended: "+text.SafeLine(d.Reason)+"\n")
	}
	return exitCode, true
}
