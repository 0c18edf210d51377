package acp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"demesne/mcp/filter"
)

// talk starts a Server whose agents run shell text, and returns functions that send and receive lines of the editor. Each
// agent has answered initialize before the text runs.
func talk(t *testing.T, o Options, agent string) (send func(format string, a ...any), receive func() string) {
	t.Helper()
	in, editor := io.Pipe()
	answers, out := io.Pipe()
	o.Stderr, o.Say = io.Discard, func(string) {}
	o.Start = func(dir string) (*exec.Cmd, string, error) {
		const hello = `read -r first; case $first in *'"terminal":true'*) echo '{"jsonrpc":"2.0","method":"said","params":{"terminal":true}}';; esac
echo '{"jsonrpc":"2.0","id":"demesne-initialize","result":{}}'; read -r new
`
		return exec.Command("/bin/sh", "-c", hello+agent), dir, nil
	}
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(o, in, out)
		out.Close()
	}()
	lines := bufio.NewReader(answers)
	t.Cleanup(func() {
		editor.Close()
		go io.Copy(io.Discard, answers)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	send = func(format string, a ...any) { fmt.Fprintf(editor, format+"\n", a...) }
	receive = func() string {
		line, _ := lines.ReadString('\n')
		return strings.TrimSpace(line)
	}
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"terminal":true}}}`)
	if hello := receive(); !strings.Contains(hello, `"protocolVersion":1`) {
		t.Fatalf("initialize: %s", hello)
	}
	return send, receive
}

const newSession = `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":%q,"mcpServers":[]}}`

// TestOutside checks which requests of an agent reach the editor, and what a hostile agent gets for the others.
func TestOutside(t *testing.T) {
	dir := t.TempDir()
	project := filepath.Join(dir, "project")
	for _, d := range []string{project + "/.git/hooks", project + "/sub"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": dir, "nothing": dir + "/none", "in": project + "/sub"} {
		if err := os.Symlink(to, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		method, path string
		pass         bool
	}{
		{"fs/read_text_file", project + "/a", true}, {"fs/write_text_file", project + "/new/b", true}, {"fs/write_text_file", project + "/in/c", true},
		{"fs/read_text_file", project + "/../secret", false}, {"fs/read_text_file", dir + "/secret", false}, {"fs/read_text_file", "a", false},
		{"fs/read_text_file", "", false}, {"fs/write_text_file", project + "/out/x", false}, {"fs/write_text_file", project + "/nothing", false},
		{"fs/write_text_file", project + "/.git/hooks/pre-commit", false}, {"fs/write_text_file", project + "/.envrc", false},
		{"fs/read_text_file", project + "/.envrc", true}, {"fs/other", "/etc/passwd", false},
		{"terminal/create", "", false}, {"session/request_permission", "", true},
	} {
		path, _ := json.Marshal(c.path)
		if why := outside(project, c.method, map[string]json.RawMessage{"path": path}); (why == "") != c.pass {
			t.Errorf("%s %q: %q", c.method, c.path, why)
		}
	}
	send, receive := talk(t, Options{}, `echo '{"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{"command":"id"}}'; read -r answer
echo '{"jsonrpc":"2.0","method":"told","params":'"$answer"'}'
echo '{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"/ok","path":"`+project+`/a"}}'; read -r answer
echo '{"jsonrpc":"2.0","method":"told","params":'"$answer"'}'`)
	send(newSession, project)
	if told := receive(); !strings.Contains(told, "terminals are outside") {
		t.Errorf("a terminal: %s", told)
	}
	asked := receive()
	m, err := filter.Parse([]byte(asked))
	if err != nil || strings.Contains(asked, "/ok") || m.Method != "fs/read_text_file" {
		t.Fatalf("a field twice: %s", asked)
	}
	send(`{"jsonrpc":"2.0","id":%s,"result":{"content":"of the editor"}}`, m.ID)
	if told := receive(); !strings.Contains(told, "of the editor") || !strings.Contains(told, `"id":7`) {
		t.Errorf("the answer: %s", told)
	}
	if end := receive(); !strings.Contains(end, `"id":1`) || !strings.Contains(end, "the agent ended") {
		t.Errorf("the end: %s", end)
	}
}

// TestRequests checks that --allow-requests passes terminals, and says so to the agent.
func TestRequests(t *testing.T) {
	send, receive := talk(t, Options{Requests: true}, `echo '{"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{}}'; read -r x`)
	send(newSession, t.TempDir())
	for _, want := range []string{`{"terminal":true}`, "terminal/create"} {
		if got := receive(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestForeignSession checks that an agent neither takes nor names the session of another directory's agent, and answers
// nothing that it was not asked.
func TestForeignSession(t *testing.T) {
	send, receive := talk(t, Options{}, `id=$(echo "$new" | sed 's/.*"id":\([0-9]*\).*/\1/')
echo '{"jsonrpc":"2.0","id":99,"result":{}}'
echo 'no message'
[ "$id" = 1 ] || echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}'
echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"sessionId":"s"}}'; read -r x; echo '{"jsonrpc":"2.0","method":"got","params":'"$x"'}'; read -r x`)
	send(newSession, t.TempDir())
	if got := receive(); !strings.Contains(got, `"sessionId":"s"`) {
		t.Errorf("the first session: %s", got)
	}
	send(strings.Replace(newSession, `"id":1`, `"id":2`, 1), t.TempDir())
	if got := receive(); !strings.Contains(got, `"id":2`) || !strings.Contains(got, "cannot have") {
		t.Errorf("the second session: %s", got)
	}
	send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	if got := receive(); !strings.Contains(got, "session/cancel") {
		t.Errorf("the notification went elsewhere: %s", got)
	}
	for _, c := range []struct{ request, want string }{
		{`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"other"}}`, "unknown session"},
		{`{"jsonrpc":"2.0","id":4,"method":"session/list","params":{}}`, `"sessions":[]`},
		{`{"jsonrpc":"2.0","id":5,"method":"authenticate","params":{}}`, `"result":{}`},
	} {
		send(c.request)
		if got := receive(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.request, got)
		}
	}
}

// TestSilent checks that an agent that never answers initialize, and asks without end, is ended.
func TestSilent(t *testing.T) {
	s := &Server{o: Options{Say: func(string) {}}, out: io.Discard}
	p := &peer{s: s, root: "/nonexistent", lines: make(chan []byte, maxQueue)}
	for range 2 * maxQueue {
		m, err := filter.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"terminal/create","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.received(m); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.waiting) != maxQueue || !p.ended {
		t.Errorf("%d messages wait, ended %t", len(p.waiting), p.ended)
	}
}

// FuzzAgent checks that no message of an agent makes the Server fail, or names a file outside of the project to the editor.
func FuzzAgent(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"/project/../etc/passwd"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"fs/write_text_file","params":{"path":"/etc/passwd"}}`)) // a notification
	f.Add([]byte(`{"jsonrpc":"2.0","id":"demesne-initialize","result":{"sessionId":"s"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := filter.Parse(line)
		if err != nil {
			return
		}
		var out strings.Builder
		s := &Server{o: Options{Say: func(string) {}}, out: &out, peers: map[string]*peer{}, sessions: map[string]*peer{}, asked: map[string]question{}}
		p := &peer{s: s, root: "/nonexistent/project", lines: make(chan []byte, maxQueue), pending: map[string]string{"1": "session/new"}}
		if err := p.received(m); err != nil {
			t.Fatal(err)
		}
		sent, err := filter.Parse([]byte(strings.TrimSpace(out.String())))
		if err != nil || !strings.HasPrefix(sent.Method, "fs/") {
			return
		}
		var params struct{ Path string }
		json.Unmarshal(sent.Params, &params)
		if !strings.HasPrefix(filepath.Clean(params.Path), "/nonexistent/project") {
			t.Errorf("passed %s", out.String())
		}
	})
}
