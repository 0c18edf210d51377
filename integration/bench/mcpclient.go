package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// session is a demesne-mcp process and the client's end of the connection. Its methods may be called
// concurrently.
type session struct {
	*machine
	cmd *exec.Cmd
	in  io.WriteCloser

	mu   sync.Mutex
	next int
	open map[int]chan message // nil: the server has ended
}

type params = map[string]any

type message struct {
	ID     int
	Method string
	Result json.RawMessage
	Error  *struct{ Message string }
}

// toolResult holds the fields of tool results that the bench reads.
type toolResult struct {
	ExitCode    int    `json:"exit_code"`
	SandboxID   string `json:"sandbox_id"`
	OutputDir   string `json:"output_dir"`
	Stdout      string `json:"stdout"`
	StdoutBytes int64  `json:"stdout_bytes"`
	Truncated   bool   `json:"stdout_truncated"`
}

// serve starts a server and returns when it has answered initialize.
func (m *machine) serve() (*session, error) {
	s := &session{machine: m, cmd: m.command("demesne-mcp"), open: map[int]chan message{}}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go s.listen(out)
	_, err = s.request("initialize", params{"protocolVersion": "2025-06-18", "capabilities": params{}, "clientInfo": params{"name": "bench", "version": "1"}})
	if err == nil {
		err = s.write(params{"jsonrpc": "2.0", "method": "notifications/initialized"})
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// listen delivers answers to the calls that wait for them, until the server ends.
func (s *session) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a message
		if json.Unmarshal(lines.Bytes(), &a) != nil || a.Method != "" {
			continue // a notification
		}
		s.mu.Lock()
		if ch := s.open[a.ID]; ch != nil {
			delete(s.open, a.ID)
			ch <- a
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.open {
		close(ch)
	}
	s.open = nil
}

func (s *session) write(m params) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.in.Write(append(raw, '\n'))
	return err
}

func (s *session) request(method string, p params) (json.RawMessage, error) {
	answer := make(chan message, 1)
	s.mu.Lock()
	s.next++
	id := s.next
	if s.open != nil {
		s.open[id] = answer
	} else {
		close(answer)
	}
	s.mu.Unlock()
	if err := s.write(params{"jsonrpc": "2.0", "id": id, "method": method, "params": p}); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: the server ended", method)
		}
		if a.Error != nil {
			return nil, fmt.Errorf("%s: the server says %q", method, a.Error.Message)
		}
		return a.Result, nil
	case <-time.After(60 * time.Second):
		return nil, fmt.Errorf("%s: no answer within 60 s", method)
	}
}

// call calls a tool, and returns an error if the tool does.
func (s *session) call(tool string, p params) (*toolResult, error) {
	raw, err := s.request("tools/call", params{"name": tool, "arguments": p})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	var r struct {
		IsError           bool
		Content           []struct{ Text string }
		StructuredContent toolResult
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", tool, err)
	}
	if r.IsError {
		return nil, fmt.Errorf("%s: %v", tool, r.Content)
	}
	return &r.StructuredContent, nil
}

// close ends the server's input and waits for the server to exit.
func (s *session) close() error {
	s.in.Close()
	kill := time.AfterFunc(20*time.Second, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("end demesne-mcp: %w", err)
	}
	return nil
}
