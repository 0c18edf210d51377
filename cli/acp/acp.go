// Package acp speaks the Agent Client Protocol (agentclientprotocol.com, version 1) with an editor, and passes the messages of
// its sessions to agents in sandboxes: one for each directory in which the editor opens a session.
//
//	editor ── initialize ──▶ [Server]                     answered at once, from the row of the agent
//	editor ── session/new, session/load ──▶ [Server] ──▶ agent in a sandbox, which its own initialize precedes
//	editor ◀── requests for files and permissions, session/update ── [Server] ◀── agent
//
// A message is a line of JSON-RPC. The agent is hostile: each of its lines is bounded and encoded again, its requests get
// other ids, and it can answer or name only what belongs to it. A terminal of the editor, and a file outside of the project,
// are outside of its sandbox: see outside.go. The package starts no sandbox itself: [Options.Start] does.
package acp

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/text"
	"demesne/mcp/filter"
)

// Bounds of what an agent can send.
const (
	maxLine     = 64 << 20
	maxRequests = 256  // of one agent that wait for the editor
	maxQueue    = 1024 // messages for an agent that it did not read
	maxSessions = 4096
)

// Codes of JSON-RPC.
const (
	codeNoMethod = -32601
	codeBad      = -32602
	codeInternal = -32603
)

// protocolVersion is the version that this package speaks.
const protocolVersion = 1

// Options describe the agent.
type Options struct {
	Name, Title, Version string
	Capabilities         map[string]any

	// Requests passes the agent's requests that act outside of its sandbox.
	Requests bool
	// Start returns the command that runs the agent in a sandbox, with the directory as its project, and the project's root.
	Start  func(dir string) (cmd *exec.Cmd, root string, err error)
	Stderr io.Writer
	Say    func(string)
}

// Server serves one editor.
type Server struct {
	o   Options
	out io.Writer

	mu       sync.Mutex
	client   json.RawMessage // params of the editor's initialize
	peers    map[string]*peer
	sessions map[string]*peer
	asked    map[string]question // by the id that the editor sees
	next     int
	over     sync.WaitGroup // of the peers
}

// question is a request of an agent that the editor has not answered.
type question struct {
	of *peer
	id json.RawMessage
}

// Serve passes messages until the editor closes its stream, and ends the agents.
func Serve(o Options, in io.Reader, out io.Writer) error {
	s := &Server{o: o, out: out, peers: map[string]*peer{}, sessions: map[string]*peer{}, asked: map[string]question{}}
	err := eachLine(in, func(line []byte) error {
		m, err := filter.Parse(line)
		if err != nil {
			s.o.Say("acp: the editor sent " + err.Error())
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fromClient(m)
	})
	s.mu.Lock()
	for _, p := range s.peers {
		p.end()
	}
	s.mu.Unlock()
	s.over.Wait()
	return err
}

// eachLine calls f for each line that is not empty.
func eachLine(in io.Reader, f func([]byte) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := f(lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// targets are the fields of params by which a message finds its receiver.
type targets struct{ session, cwd string }

func targetsOf(params json.RawMessage) (t targets, fields map[string]json.RawMessage) {
	json.Unmarshal(params, &fields) // names are compared exactly
	json.Unmarshal(fields["sessionId"], &t.session)
	json.Unmarshal(fields["cwd"], &t.cwd)
	return t, fields
}

// fromClient handles a message of the editor. An error is of the stream to the editor.
func (s *Server) fromClient(m *filter.Message) error {
	switch {
	case m.Method == "":
		s.answer(m)
	case m.ID == nil:
		s.notify(m)
	case m.Method == "initialize":
		s.client = m.Params
		return s.result(m.ID, map[string]any{"protocolVersion": protocolVersion, "agentCapabilities": s.o.Capabilities, "authMethods": []any{},
			"agentInfo": map[string]any{"name": s.o.Name, "title": s.o.Title, "version": s.o.Version}})
	case m.Method == "authenticate": // the sandbox has a token from its start
		return s.result(m.ID, map[string]any{})
	default:
		return s.request(m)
	}
	return nil
}

// request passes a request to the agent of its session or directory.
func (s *Server) request(m *filter.Message) error {
	t, _ := targetsOf(m.Params)
	p := s.sessions[t.session]
	switch {
	case t.cwd != "":
		started, err := s.peer(t.cwd)
		if err != nil {
			return s.send(filter.Failure(m.ID, codeInternal, err.Error()))
		}
		if p = started; t.session != "" {
			s.sessions[t.session] = p
		}
	case t.session != "" && p == nil:
		return s.send(filter.Failure(m.ID, codeBad, fmt.Sprintf("unknown session %q", t.session)))
	case p == nil && len(s.peers) == 1:
		p = slices.Collect(maps.Values(s.peers))[0]
	case p == nil && m.Method == "session/list":
		return s.result(m.ID, map[string]any{"sessions": []any{}})
	case p == nil:
		return s.send(filter.Failure(m.ID, codeNoMethod, m.Method+": there is no session yet"))
	}
	p.pending[string(m.ID)] = m.Method
	p.send(m)
	return nil
}

// notify passes a notification of the editor.
func (s *Server) notify(m *filter.Message) {
	t, fields := targetsOf(m.Params)
	p := s.sessions[t.session]
	if id, ok := fields["requestId"]; ok && p == nil {
		for _, each := range s.peers {
			if _, ok := each.pending[string(id)]; ok {
				p = each
			}
		}
	}
	if p != nil {
		p.send(m)
	}
}

// answer passes the editor's answer to the agent that asked.
func (s *Server) answer(m *filter.Message) {
	var id string
	json.Unmarshal(m.ID, &id)
	q, ok := s.asked[id]
	if !ok {
		return
	}
	delete(s.asked, id)
	m.ID = q.id
	q.of.send(m)
}

// ask passes a request of an agent to the editor, under an id of its own.
func (s *Server) ask(p *peer, m *filter.Message) error {
	n := 0
	for _, q := range s.asked {
		if q.of == p {
			n++
		}
	}
	if n >= maxRequests {
		p.send(filter.Failure(m.ID, codeInternal, "too many requests at once"))
		return nil
	}
	s.next++
	id := "demesne-" + strconv.Itoa(s.next)
	s.asked[id] = question{p, m.ID}
	m.ID, _ = json.Marshal(id)
	return s.send(m)
}

// peer returns the agent of a directory, and starts it if needed.
func (s *Server) peer(dir string) (*peer, error) {
	if p := s.peers[dir]; p != nil {
		return p, nil
	}
	if s.client == nil {
		return nil, errors.New("a session before initialize")
	}
	p, err := s.start(dir)
	if err == nil {
		s.peers[dir] = p
	}
	return p, err
}

// remove forgets an agent that has ended, and answers what the editor asked it.
func (s *Server) remove(p *peer, why string) {
	delete(s.peers, p.dir)
	maps.DeleteFunc(s.sessions, func(_ string, of *peer) bool { return of == p })
	maps.DeleteFunc(s.asked, func(_ string, q question) bool { return q.of == p })
	for id := range p.pending {
		s.send(filter.Failure(json.RawMessage(id), codeInternal, cmp.Or(why, "the agent ended")))
	}
	p.pending = nil
}

func (s *Server) result(id json.RawMessage, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send(&filter.Message{Version: "2.0", ID: id, Result: raw})
}

func (s *Server) send(m *filter.Message) error {
	_, err := io.WriteString(s.out, m.Encode()+"\n")
	return err
}

// grace is how long an agent may take to end after its input has ended, and again after SIGTERM.
const grace = 2 * time.Second

// first is the id of the initialize that a Server sends. Editors do not use it: [Server.request] passes theirs unchanged.
const first = `"demesne-initialize"`

// peer is an agent in a sandbox.
type peer struct {
	s         *Server
	dir, root string
	cmd       *exec.Cmd
	lines     chan []byte // for the agent; closed by end
	ended     bool
	ready     bool              // it has answered initialize
	waiting   []*filter.Message // until then
	pending   map[string]string // requests of the editor that it has not answered, with their methods
	last      tail
	over      chan struct{} // closed when it has ended
}

// start starts the agent of a directory. It must be called with the lock.
func (s *Server) start(dir string) (*peer, error) {
	cmd, root, err := s.o.Start(dir)
	if err != nil {
		return nil, err
	}
	p := &peer{s: s, dir: dir, root: root, cmd: cmd, lines: make(chan []byte, maxQueue), pending: map[string]string{}, over: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	cmd.Dir, cmd.Stderr = dir, io.MultiWriter(s.o.Stderr, &p.last)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	s.over.Go(func() { p.write(in) })
	s.over.Go(func() { p.read(out) })
	p.enqueue(&filter.Message{Version: "2.0", ID: json.RawMessage(first), Method: "initialize", Params: s.initialize()})
	return p, nil
}

// initialize returns the editor's parameters, without the terminals that an agent may not use.
func (s *Server) initialize() json.RawMessage {
	if s.o.Requests {
		return s.client
	}
	var all, can map[string]json.RawMessage
	if json.Unmarshal(s.client, &all) != nil || json.Unmarshal(all["clientCapabilities"], &can) != nil || can == nil {
		return s.client
	}
	can["terminal"] = json.RawMessage("false")
	all["clientCapabilities"], _ = json.Marshal(can)
	raw, _ := json.Marshal(all) // of parsed JSON
	return raw
}

// send passes a message to the agent, once it has answered initialize.
func (p *peer) send(m *filter.Message) {
	switch {
	case p.ready:
		p.enqueue(m)
	case len(p.waiting) < maxQueue:
		p.waiting = append(p.waiting, m)
	default:
		p.end()
	}
}

func (p *peer) enqueue(m *filter.Message) {
	if p.ended {
		return
	}
	select {
	case p.lines <- []byte(m.Encode() + "\n"):
	default:
		p.s.o.Say("acp: the agent reads no messages: it is ended")
		p.end()
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// end closes the agent's input.
func (p *peer) end() {
	if !p.ended {
		p.ended = true
		close(p.lines)
	}
}

// write writes messages to the agent, and ends it after the last.
func (p *peer) write(in io.WriteCloser) {
	for line := range p.lines {
		if _, err := in.Write(line); err != nil {
			for range p.lines { // until read has seen its end
			}
		}
	}
	in.Close()
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.over:
			return
		case <-time.After(grace):
			p.cmd.Process.Signal(s)
		}
	}
}

// read reads messages of the agent until it ends.
func (p *peer) read(out io.Reader) {
	err := eachLine(out, func(line []byte) error {
		m, err := filter.Parse(line)
		if err != nil {
			p.s.o.Say("acp: the agent sent " + err.Error())
			return nil
		}
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		return p.received(m)
	})
	if err != nil {
		p.s.o.Say(fmt.Sprintf("acp: read from the agent: %v", err))
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	io.Copy(io.Discard, out)
	err = p.cmd.Wait()
	close(p.over)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.end()
	p.s.remove(p, p.why(err))
}

// why says how the agent ended, by what it wrote last on stderr.
func (p *peer) why(err error) string {
	said := text.SafeLine(strings.TrimSpace(p.last.String()))
	if err == nil {
		err = errors.New("exit status 0")
	}
	if said == "" {
		return fmt.Sprintf("the agent ended: %v", err)
	}
	return fmt.Sprintf("the agent ended: %v: %s", err, said)
}

// received handles a message of the agent.
func (p *peer) received(m *filter.Message) error {
	t, fields := targetsOf(m.Params)
	if of := p.s.sessions[t.session]; t.session != "" && of != nil && of != p {
		p.s.o.Say("acp: the agent sent a message about another agent's session")
		return nil
	}
	if m.Method == "" {
		return p.answered(m)
	}
	if why := outside(p.root, m.Method, fields); why != "" && !p.s.o.Requests {
		p.s.o.Say(fmt.Sprintf("acp: refused %s: %s; --allow-requests passes it", text.SafeLine(m.Method), why))
		if m.ID != nil {
			p.send(filter.Failure(m.ID, codeBad, why))
		}
		return nil
	}
	if m.ID == nil {
		return p.s.send(m)
	}
	if strings.HasPrefix(m.Method, "fs/") {
		m.Params, _ = json.Marshal(fields) // each field once, as outside has read it
	}
	return p.s.ask(p, m)
}

// answered passes an answer of the agent to a request that it got.
func (p *peer) answered(m *filter.Message) error {
	if id := string(m.ID); id == first && !p.ready {
		return p.initialized(m)
	}
	method, ok := p.pending[string(m.ID)]
	if !ok {
		return nil
	}
	delete(p.pending, string(m.ID))
	if t, _ := targetsOf(m.Result); t.session != "" && (method == "session/new" || method == "session/fork") {
		if of := p.s.sessions[t.session]; of != nil && of != p || len(p.s.sessions) >= maxSessions {
			return p.s.send(filter.Failure(m.ID, codeInternal, "the agent returned a session that it cannot have"))
		}
		p.s.sessions[t.session] = p
	}
	return p.s.send(m)
}

func (p *peer) initialized(m *filter.Message) error {
	if m.Error != nil {
		p.s.o.Say("acp: the agent refused initialize: " + text.SafeLine(string(m.Error)))
		p.end()
		return nil
	}
	p.ready = true
	for _, w := range p.waiting {
		p.enqueue(w)
	}
	p.waiting = nil
	return nil
}
