package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/text"
	"demesne/mcp/filter"
	"demesne/rootfs/upper"
)

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
	if p.ready {
		p.enqueue(m)
		return
	}
	p.waiting = append(p.waiting, m)
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
	switch {
	case m.Method == "":
		return p.answered(m)
	case m.ID == nil:
		return p.s.send(m)
	}
	if why := p.outside(m.Method, fields); why != "" && !p.s.o.Requests {
		p.s.o.Say(fmt.Sprintf("acp: refused %s: %s; --allow-requests passes it", text.SafeLine(m.Method), why))
		p.send(filter.Failure(m.ID, codeBad, why))
		return nil
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

// outside says why a request acts outside of the agent's sandbox, or returns "". Between this look and the editor's, the
// agent can make a file of the project a link: the editor's own rules for files are the last ones.
func (p *peer) outside(method string, fields map[string]json.RawMessage) string {
	if strings.HasPrefix(method, "terminal/") {
		return "the editor's terminals are outside of the sandbox"
	}
	if !strings.HasPrefix(method, "fs/") {
		return ""
	}
	var file string
	json.Unmarshal(fields["path"], &file)
	rel, err := filepath.Rel(p.root, resolved(file))
	switch {
	case !filepath.IsAbs(file) || err != nil || !filepath.IsLocal(rel):
		return fmt.Sprintf("the file %q is outside of the project", file)
	case method != "fs/read_text_file" && upper.GuardedBy(rel) != "":
		return fmt.Sprintf("%s of this machine would execute the file %q, which is read-only in the sandbox", upper.GuardedBy(rel), file)
	}
	return ""
}

// resolved returns a path whose existing part has no links.
func resolved(file string) string {
	file = filepath.Clean(file)
	real, err := filepath.EvalSymlinks(file)
	if err == nil {
		return real
	}
	if _, err := os.Lstat(file); err == nil { // a link to nothing: a write would make its target
		return ""
	}
	if above := filepath.Dir(file); above != file {
		return filepath.Join(resolved(above), filepath.Base(file))
	}
	return file
}

// tail keeps the end of what was written.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailKept = 1 << 10

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, data...)
	t.kept = t.kept[max(0, len(t.kept)-tailKept):]
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
