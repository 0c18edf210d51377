package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// mcpClient is the client's end of a demesne-mcp over stdio.
type mcpClient struct {
	*box
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Closer // the server's stdout
	errs   syncBuffer
	mu     sync.Mutex
	next   int
	open   map[string]chan answer
	notes  []note
	elicit string   // what the user answers to questions
	garble []string // lines of stdout that are not messages
	ended  chan struct{}
	shapes func() map[string]*jsonschema.Resolved // of results, by tool
}

// answer is a tool's result, or the JSON-RPC error in its place.
type answer struct {
	Text    string
	IsError bool
	Fields  map[string]any
	Result  json.RawMessage
	Code    int // code of a JSON-RPC error
	Lost    bool
}

// note is a notification, or a request from the server.
type note struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type syncBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, p...)
	return len(p), nil
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b)
}

// mcp starts a server and initializes a session.
func (b *box) mcp() *mcpClient {
	b.Helper()
	c := b.mcpRaw()
	c.ask("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
	})
	c.tell("notifications/initialized", nil)
	return c
}

// mcpRaw starts a server.
func (b *box) mcpRaw() *mcpClient {
	b.Helper()
	c := b.mcpUnstarted()
	c.begin()
	return c
}

// mcpUnstarted returns a server that begin has yet to start.
func (b *box) mcpUnstarted() *mcpClient {
	c := &mcpClient{box: b, cmd: b.command("demesne-mcp"), open: map[string]chan answer{}, ended: make(chan struct{})}
	c.shapes = sync.OnceValue(c.published)
	return c
}

func (c *mcpClient) begin() {
	c.Helper()
	c.cmd.Stderr = &c.errs
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		c.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	c.out = out
	if err := c.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go c.listen(out)
	c.keepsJobs()
	c.Cleanup(func() { c.close() })
}

// keepsJobs removes the directory of jobs at the end of the test.
func (b *box) keepsJobs() {
	b.Cleanup(func() { os.RemoveAll(filepath.Join(b.home, ".demesne/jobs")) })
}

func (c *mcpClient) listen(out io.Reader) {
	defer close(c.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		c.take(lines.Bytes())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.open {
		ch <- answer{Lost: true}
	}
	c.open = nil
}

func (c *mcpClient) take(line []byte) {
	var m struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Code    int
			Message string
		}
		note
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := json.Unmarshal(line, &m); err != nil || m.Version != "2.0" {
		c.garble = append(c.garble, string(line))
		return
	}
	if m.Method != "" {
		c.notes = append(c.notes, m.note)
		if m.Method == "elicitation/create" {
			go c.write(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{"action": c.elicit, "content": map[string]any{}}})
		}
		return
	}
	a := answer{Result: m.Result}
	if m.Error != nil {
		a.Code, a.Text, a.IsError = m.Error.Code, m.Error.Message, true
	}
	var r struct {
		Content           []struct{ Text string }
		StructuredContent map[string]any
		IsError           bool
	}
	if json.Unmarshal(m.Result, &r) == nil && len(r.Content) > 0 {
		a.Text, a.IsError, a.Fields = r.Content[0].Text, r.IsError, r.StructuredContent
	}
	if ch := c.open[string(m.ID)]; ch != nil {
		delete(c.open, string(m.ID))
		ch <- a
	}
}

// send sends a request and returns its id and a channel for its answer.
func (c *mcpClient) send(method string, params any) (id int, answers <-chan answer) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.next++
	id = c.next
	if c.open == nil {
		ch <- answer{Lost: true}
	} else {
		c.open[fmt.Sprint(id)] = ch
	}
	c.mu.Unlock()
	c.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id, ch
}

func (c *mcpClient) tell(method string, params any) {
	c.write(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func (c *mcpClient) write(m any) {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.Write(append(raw, '\n')) // if the server has ended, the answer shows that
}

// ask sends a request and waits for the answer.
func (c *mcpClient) ask(method string, params any) answer {
	c.Helper()
	_, ch := c.send(method, params)
	return c.await(ch)
}

func (c *mcpClient) await(ch <-chan answer) answer {
	c.Helper()
	select {
	case a := <-ch:
		return a
	case <-time.After(5 * time.Minute):
		c.Fatalf("no answer within five minutes\nstderr: %s", c.errs.String())
		panic("unreachable")
	}
}

// args holds the arguments of a tool.
type args = map[string]any

// start calls a tool without waiting for the result.
func (c *mcpClient) start(tool string, a args) (id int, answers <-chan answer) {
	return c.send("tools/call", args{"name": tool, "arguments": a})
}

// call calls a tool and waits for the result.
func (c *mcpClient) call(tool string, a args) answer {
	c.Helper()
	_, ch := c.start(tool, a)
	r := c.await(ch)
	c.fits(tool, r)
	return r
}

// fits checks that a result has the shape that the server publishes for the tool. Clients refuse any other.
func (c *mcpClient) fits(tool string, r answer) {
	c.Helper()
	if r.IsError || r.Lost || r.Fields == nil {
		return
	}
	if shape := c.shapes()[tool]; shape != nil {
		if err := shape.Validate(r.Fields); err != nil {
			c.Errorf("%s: the result does not fit the published schema: %v\n%s", tool, err, r.Result)
		}
	}
}

// published returns the shapes of results that the server publishes.
func (c *mcpClient) published() map[string]*jsonschema.Resolved {
	var list struct {
		Tools []struct {
			Name         string
			OutputSchema *jsonschema.Schema
		}
	}
	if err := json.Unmarshal(c.ask("tools/list", nil).Result, &list); err != nil {
		c.Fatalf("tools/list: %v", err)
	}
	shapes := map[string]*jsonschema.Resolved{}
	for _, t := range list.Tools {
		if t.OutputSchema == nil {
			continue
		}
		shape, err := t.OutputSchema.Resolve(nil)
		if err != nil {
			c.Fatalf("%s: %v", t.Name, err)
		}
		shapes[t.Name] = shape
	}
	return shapes
}

// must calls a tool, which has to succeed.
func (c *mcpClient) must(tool string, a args) answer {
	c.Helper()
	r := c.call(tool, a)
	if r.IsError || r.Lost {
		c.Fatalf("%s %v: %+v\nstderr: %s", tool, a, r, c.errs.String())
	}
	return r
}

func (a answer) field(name string) string { return fmt.Sprint(a.Fields[name]) }

// meta returns a member of the result's _meta: "receipt" or "manifest".
func (a answer) meta(name string) any {
	var r struct {
		Meta map[string]any `json:"_meta"`
	}
	json.Unmarshal(a.Result, &r)
	return r.Meta["demesne/"+name]
}

func (a answer) receipt() map[string]any {
	r, _ := a.meta("receipt").(map[string]any)
	return r
}

// close closes the server's input and waits for the server to exit.
func (c *mcpClient) close() int {
	c.Helper()
	c.in.Close()
	return c.wait()
}

// wait waits for the server to exit, and checks that it wrote only messages to stdout.
func (c *mcpClient) wait() int {
	c.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.Errorf("the server goes on %v after its input ended\nstderr: %s", patience, c.errs.String())
		c.cmd.Process.Kill()
		<-c.ended
	}
	c.cmd.Wait()
	if len(c.garble) > 0 {
		c.Errorf("on stdout, and no message: %q", c.garble)
	}
	return c.cmd.ProcessState.ExitCode()
}

// readFile reads a file that has to exist.
func readFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
