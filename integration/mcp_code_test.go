package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// codeClient returns a client of a server with the tool set code.
func (b *box) codeClient(extra ...string) *mcpClient {
	b.Helper()
	b.extra = append(append(b.extra, "DEMESNE_TOOLS=code"), extra...)
	return b.mcp()
}

// session makes a session with demesne's own kernel and returns its id.
func (c *mcpClient) session(language string) string {
	c.Helper()
	return c.must("create_session", args{"language": language, "kernel": "demesne"}).field("session_id")
}

func (c *mcpClient) execute(session, code string) answer {
	c.Helper()
	return c.must("execute_code", args{"session_id": session, "code": code})
}

// value returns the plain text of a result.
func (a answer) value() string {
	r, _ := a.Fields["result"].(map[string]any)
	s, _ := r["text/plain"].(string)
	return s
}

// failure returns a field of the error in a result.
func (a answer) failure(name string) string {
	e, _ := a.Fields["error"].(map[string]any)
	return fmt.Sprint(e[name])
}

// TestMCPCodeSession keeps state between calls, in Python and Node.
func TestMCPCodeSession(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_PREPARED_SESSIONS=0")
	for language, steps := range map[string][][2]string{
		"python": {{"x = 40", ""}, {"x + 2", "42"}, {"import asyncio\nawait asyncio.sleep(0, 'slept')", "'slept'"}, {"def f(n):\n  return n * 2\nf(x)", "80"}},
		"node":   {{"const x = 40", ""}, {"x + 2", "42"}, {"const y = await Promise.resolve(x * 2); y", "80"}, {"const x = 1; x", "1"}},
	} {
		s := c.session(language)
		for _, step := range steps {
			if r := c.execute(s, step[0]); r.field("success") != "true" || r.value() != step[1] {
				t.Errorf("%s %q: %v, want %q", language, step[0], r.Fields, step[1])
			}
		}
		c.must("stop_session", args{"session_id": s})
		if r := c.call("execute_code", args{"session_id": s, "code": "1"}); !r.IsError || !strings.Contains(r.Text, "no session is live; create_session makes one") {
			t.Errorf("%s: after the end: %+v", language, r)
		}
	}
	if left := names(b.out); len(left) > 0 && !slices.Equal(left, []string{".mcp"}) {
		t.Errorf("output directories of sessions that wrote nothing: %v", left)
	}
}

// TestMCPCodeApart checks that two sessions see nothing of each other, and that a second client sees none of them.
func TestMCPCodeApart(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	one, two := c.session("python"), c.session("python")
	c.execute(one, "secret = 'one'; open('/tmp/f', 'w').write('one'); import subprocess; subprocess.Popen(['sleep', '3377'])")
	for code, want := range map[string]string{
		"'secret' in globals()": "False", "import os; os.path.exists('/tmp/f')": "False",
		"import glob; any(b'3377' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/cmdline'))": "False",
	} {
		if r := c.execute(two, code); r.value() != want {
			t.Errorf("%s: %v", code, r.Fields)
		}
	}
	other := b.mcp()
	if r := other.call("execute_code", args{"session_id": one, "code": "secret"}); !r.IsError || strings.Contains(r.Text, two) {
		t.Errorf("another server: %+v", r)
	}
	if r := c.must("inspect_state", args{}); len(r.Fields["sessions"].([]any)) != 2 {
		t.Errorf("sessions: %v", r.Fields)
	}
	c.close()
	eventually(t, "the sessions to end with their server", func() bool { return sleepers("3377") == 0 })
}

// TestMCPCodeLimits checks what code cannot do: read input, run for ever, write without end, or take the kernel along.
func TestMCPCodeLimits(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	s := c.session("python")
	if r := c.execute(s, "input('name? ')"); r.failure("type") != "RuntimeError" || !strings.Contains(r.failure("message"), "not available") {
		t.Errorf("input: %v", r.Fields)
	}
	var r answer
	for limit := 1; r.field("stdout") != "up\n" && limit < 100; limit *= 4 { // on a slow machine the code may begin after the first
		began := time.Now()
		r = c.must("execute_code", args{"session_id": s, "code": "x = 7\nprint('up', flush=True)\nwhile True: pass", "timeout": limit})
		if r.field("timed_out") != "true" || r.failure("type") != "TimeoutError" || time.Since(began) > 20*time.Second+time.Duration(limit)*time.Second {
			t.Errorf("endless: %v after %s", r.Fields, time.Since(began))
		}
	}
	if r = c.execute(s, "x"); r.value() != "7" {
		t.Errorf("after a timeout: %v", r.Fields)
	}
	r = c.must("execute_code", args{"session_id": s, "code": "for i in range(300000): print('line', i)", "timeout": 60})
	out := r.field("stdout")
	if len(out) > 25000 || !strings.HasSuffix(out, "line 299999\n") || !strings.Contains(out, "bytes left out") || r.field("stdout_truncated") != "true" {
		t.Errorf("300,000 lines: %d bytes, …%q", len(out), out[max(0, len(out)-60):])
	}
	r = c.execute(s, "def f():\n  raise ValueError('bad')\nprint('before')\nf()")
	if r.IsError || r.field("success") != "false" || r.failure("type") != "ValueError" || r.failure("message") != "bad" || r.field("stdout") != "before\n" || !strings.Contains(r.failure("traceback"), "in f") {
		t.Errorf("an exception: %v", r.Fields)
	}
	if r = c.execute(s, "1 +"); r.failure("type") != "SyntaxError" {
		t.Errorf("syntax: %v", r.Fields)
	}
	for code, says := range map[string]string{
		"import os; print('last', flush=True); os._exit(3)": "exited with status 3",
		"import os; os.kill(os.getpid(), 9)":                "killed (SIGKILL, 137)",
		"import ctypes; ctypes.string_at(0)":                "segmentation fault (SIGSEGV, 139)",
	} {
		s := c.session("python")
		r := c.call("execute_code", args{"session_id": s, "code": code})
		if !r.IsError || r.failure("type") != "CONTAINER_DIED" || !strings.Contains(r.failure("message"), says) || r.Fields["hint"] == nil {
			t.Errorf("%s: %+v", code, r)
		}
		if again := c.call("execute_code", args{"session_id": s, "code": "1"}); !again.IsError || !strings.Contains(again.Text, says) {
			t.Errorf("%s: the next call: %+v", code, again)
		}
	}
}

// TestMCPCodeOnce runs code without a session, and checks that nothing is left.
func TestMCPCodeOnce(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_PREPARED_SESSIONS=0", "DEMESNE_POOL_SIZE=0") // every PID 1 belongs to a call
	for _, step := range []struct{ language, code, value, stdout string }{
		{"python", "print('hi'); 6 * 7", "42", "hi\n"}, {"javascript", "console.log('hi'); 6 * 7", "42", "hi\n"},
		{"shell", "echo hi; exit 3", "", "hi\n"}, {"bash", "x=(a b); echo ${x[1]}", "", "b\n"},
	} {
		r := c.must("execute_code", args{"language": step.language, "code": step.code, "kernel": kernelOf(step.language)})
		if r.value() != step.value || r.field("stdout") != step.stdout {
			t.Errorf("%s: %v", step.language, r.Fields)
		}
	}
	r := c.must("execute_code", args{"language": "shell", "code": "exit 3"})
	if r.field("success") != "false" || r.field("exit_code") != "3" || r.failure("type") != "ExitStatus" {
		t.Errorf("exit 3: %v", r.Fields)
	}
	if r = c.must("execute_code", args{"language": "shell", "code": "sleep 100", "timeout": 1}); r.field("timed_out") != "true" {
		t.Errorf("a long one: %v", r.Fields)
	}
	if r = c.call("execute_code", args{"language": "pyhton", "code": "1"}); !r.IsError || !strings.Contains(r.Text, "did you mean python?") {
		t.Errorf("a typing error: %+v", r)
	}
	if n := len(named("demesne-init")); n > 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// kernelOf returns the argument for demesne's own kernel, if the language has one.
func kernelOf(language string) any {
	if language == "python" || language == "javascript" {
		return "demesne"
	}
	return nil
}

// TestMCPCodeFigures checks that a picture arrives as content and as a file, which no link of the sandbox can move.
func TestMCPCodeFigures(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	secret := b.file("secret.png", canary, 0o666)
	made := c.must("create_session", args{"kernel": "demesne"})
	s, out := made.field("session_id"), made.field("output_dir")
	c.execute(s, fmt.Sprintf("import os; os.symlink(%q, 'figure-1.png'); os.mkdir('figure-2.png')", secret))
	r := c.execute(s, `import zlib, struct, base64
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Red:
    def _repr_png_(self):
        return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 2, 2, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(b'\0\xff\0\0\xff\0\0' * 2)) + chunk(b'IEND', b'')
class Page:
    def _repr_html_(self): return '<b>page</b>'
display(Page())
Red()`)
	var content struct {
		Content []struct{ Type, Data, MimeType string }
	}
	json.Unmarshal(r.Result, &content)
	if len(content.Content) != 2 || content.Content[1].Type != "image" || content.Content[1].MimeType != "image/png" {
		t.Fatalf("content: %.2000s", r.Result)
	}
	raw, _ := base64.StdEncoding.DecodeString(content.Content[1].Data)
	if img, err := png.Decode(bytes.NewReader(raw)); err != nil || img.Bounds().Dx() != 2 {
		t.Errorf("the picture: %v", err)
	} else if red, green, _, _ := img.At(1, 1).RGBA(); red != 0xffff || green != 0 {
		t.Errorf("the picture is %v", img.At(1, 1))
	}
	list, _ := r.Fields["display_outputs"].([]any)
	if len(list) != 2 {
		t.Fatalf("display_outputs: %v", r.Fields)
	}
	page, figure := list[0].(map[string]any), list[1].(map[string]any)
	if page["data"] != "<b>page</b>" || page["type"] != "text/html" || figure["data"] != nil || figure["file"] == nil {
		t.Errorf("display_outputs: %v", list)
	}
	if path := fmt.Sprint(figure["file"]); filepath.Dir(path) != out || !bytes.Equal([]byte(readFile(t, path)), raw) {
		t.Errorf("%s is not the picture", path)
	}
	if got := readFile(t, secret); got != canary {
		t.Errorf("the sandbox's link was followed: %q", got)
	}
	c.must("stop_session", args{"session_id": s})
	if _, err := os.Stat(fmt.Sprint(figure["file"])); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestMCPCodeTransfer moves files into a session and out of it, and runs commands beside the kernel.
func TestMCPCodeTransfer(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	b.file("data/in.csv", "a,b\n1,2\n", 0o644)
	one, two := c.session("python"), c.session("node")
	r := c.must("import_files", args{"session_id": one, "files": []any{
		args{"source": b.dir + "/data/in.csv"}, args{"source": b.dir + "/data", "destination": "/tmp/copy"}, args{"source": "/etc/shadow"},
		args{"file_name": "b.bin", "file_content": "AAEC", "encoding": "base64", "destination": "deep/er/"}, args{"file_name": "t.txt", "file_content": "text"},
	}})
	if strings.Count(r.Text, "copied:") != 4 || strings.Count(r.Text, "failed: /etc/shadow:") != 1 || r.field("success") != "false" {
		t.Errorf("import: %s", r.Text)
	}
	if r = c.execute(one, "[open(p, 'rb').read() for p in ('in.csv', '/tmp/copy/in.csv', 'deep/er/b.bin', '/out/t.txt')]"); r.value() != `[b'a,b\n1,2\n', b'a,b\n1,2\n', b'\x00\x01\x02', b'text']` {
		t.Errorf("imported: %v", r.Fields)
	}
	if r = c.must("execute_terminal", args{"session_id": one, "command": "pwd; cat t.txt; echo made > /tmp/made; sleep 3388 & exit 4"}); r.field("stdout") != "/out\ntext" || r.field("exit_code") != "4" {
		t.Errorf("terminal: %v", r.Fields)
	}
	if r = c.must("execute_terminal", args{"session_id": one, "command": "sleep 100", "timeout": 1}); r.field("exit_code") != "124" {
		t.Errorf("a long command: %v", r.Fields)
	}
	c.must("import_files", args{"session_id": two, "files": []any{args{"session_id": one, "path": "/tmp/made"}}})
	if r = c.execute(two, "require('fs').readFileSync('/out/made', 'utf8')"); !strings.Contains(r.value(), "made") {
		t.Errorf("from the other session: %v", r.Fields)
	}
	r = c.must("export_files", args{"session_id": one, "files": []any{args{"source": "/tmp/made"}, args{"source": "/none"}}})
	rows := r.Fields["files"].([]any)
	if path := fmt.Sprint(rows[0].(map[string]any)["path"]); !strings.HasPrefix(path, b.out) || readFile(t, path) != "made\n" || rows[1].(map[string]any)["success"] != false {
		t.Errorf("export: %v", rows)
	}
	if r := c.ask("resources/read", args{"uri": rows[0].(map[string]any)["download_url"]}); !strings.Contains(string(r.Result), `"text":"made\n"`) {
		t.Errorf("by its address: %+v", r)
	}
	c.close()
	eventually(t, "background processes to end", func() bool { return sleepers("3388") == 0 })
}

// TestMCPCodeState inspects a session, and checks that secrets are masked.
func TestMCPCodeState(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	s := c.session("python")
	c.execute(s, "import os; numbers = [1, 2, 3]; name = 'x'\nclass Odd:\n  def __repr__(self): os._exit(1)\nodd = Odd()\nos.environ['MY_API_KEY'] = 'hunter2'; os.environ['PLAIN'] = 'seen'")
	r := c.must("inspect_state", args{"session_id": s})
	raw, _ := json.Marshal(r.Fields)
	for _, want := range []string{`{"name":"numbers","type":"list","value":"[1, 2, 3]"}`, `{"name":"odd","type":"Odd"}`, `"MY_API_KEY":"***"`, `"PLAIN":"seen"`, `python3`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %s in %s", want, raw)
		}
	}
	if strings.Contains(string(raw), "hunter2") || r.Fields["memory_bytes"].(float64) < 1<<20 {
		t.Errorf("state: %s", raw)
	}
	if r := c.execute(s, "sorted(n for n in globals() if not n.startswith('__'))"); r.value() != "['Odd', 'name', 'numbers', 'odd', 'os']" {
		t.Errorf("names that the inspection left: %s", r.value())
	}
	_, ch := c.start("execute_code", args{"session_id": s, "code": "import os, time\nopen('/out/busy', 'w')\nwhile os.path.exists('/out/busy'): time.sleep(0.01)"})
	var busy []string
	eventually(t, "the code to work", func() bool { busy, _ = filepath.Glob(b.out + "/*/busy"); return len(busy) == 1 })
	if r := c.must("inspect_state", args{"session_id": s}); r.field("status") != "busy" || !strings.Contains(r.field("variables_error"), "busy") {
		t.Errorf("while it works: %v", r.Fields)
	}
	if err := os.Remove(busy[0]); err != nil {
		t.Fatal(err)
	}
	c.await(ch)
	n := c.session("node")
	c.execute(n, "const list = [1, 2]; var text = 'abc'")
	if r := c.must("inspect_state", args{"session_id": n}); !strings.Contains(r.Text, "variable: list Array") || !strings.Contains(r.Text, "variable: text string") {
		t.Errorf("node: %s", r.Text)
	}
	r = c.must("list_runtimes", args{})
	if !strings.Contains(r.Text, "python Python 3.") || !strings.Contains(r.Text, "node v") || !strings.Contains(r.Text, "session: true kernels: ") {
		t.Errorf("runtimes: %s", r.Text)
	}
}

// TestMCPCodeValidate checks syntax without executing anything.
func TestMCPCodeValidate(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	s := c.session("python")
	for _, step := range []struct {
		args args
		want string
	}{
		{args{"session_id": s, "code": "open('/tmp/ran', 'w')\n"}, "valid: true\n"},
		{args{"language": "python", "code": "x = 1\ny = (2\n"}, "valid: false\nline 2, column 5: "},
		{args{"language": "node", "code": "let a = 1\nlet b = }\n"}, "valid: false\nline 2, column 9: "},
		{args{"language": "shell", "code": "echo a\nif true; then\n"}, "valid: false\nline "},
	} {
		if r := c.must("validate_code", step.args); !strings.HasPrefix(r.Text, step.want) {
			t.Errorf("%v: %q", step.args, r.Text)
		}
	}
	if r := c.execute(s, "import os; os.path.exists('/tmp/ran')"); r.value() != "False" {
		t.Error("validate_code has executed the code")
	}
}

// TestMCPCodeGone checks that a client that goes away leaves nothing, also in the middle of an execution.
func TestMCPCodeGone(t *testing.T) {
	b := newBox(t)
	for how, leave := range map[string]func(*mcpClient){
		"killed":       func(c *mcpClient) { c.cmd.Process.Kill() },
		"closed pipes": func(c *mcpClient) { c.in.Close(); c.out.Close() },
	} {
		c := b.codeClient("DEMESNE_POOL_SIZE=0")
		s := c.session("python")
		c.start("execute_code", args{"session_id": s, "code": "import subprocess; subprocess.run(['sleep', '3399'])", "timeout": 300})
		eventually(t, "the code to run", func() bool { return sleepers("3399") == 1 })
		leave(c)
		eventually(t, how+": the sandboxes to end", func() bool { return sleepers("3399") == 0 && len(named("demesne-init")) == 0 })
	}
}

// TestMCPCodeCancelled checks that a client that cancels an execution interrupts it, and the session goes on.
func TestMCPCodeCancelled(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	s := c.session("python")
	id, _ := c.start("execute_code", args{"session_id": s, "code": "import subprocess; kept = 1; subprocess.run(['sleep', '3366'])", "timeout": 300})
	eventually(t, "the code to run", func() bool { return sleepers("3366") == 1 })
	c.tell("notifications/cancelled", args{"requestId": id})
	if r := c.execute(s, "kept"); r.value() != "1" {
		t.Errorf("after that: %v", r.Fields)
	}
	eventually(t, "the child to end", func() bool { return sleepers("3366") == 0 })
}

// TestMCPCodeParallel executes in several sessions at once; the calls of one session have an order.
func TestMCPCodeParallel(t *testing.T) {
	b := newBox(t)
	c := b.codeClient()
	var ids []string
	for range 3 {
		ids = append(ids, c.session("python"))
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		c.execute(id, "n = 0")
		for range 10 {
			wg.Go(func() { c.execute(id, "n += 1; import time; time.sleep(0.01)") })
		}
	}
	wg.Wait()
	for _, id := range ids {
		if r := c.execute(id, "n"); r.value() != "10" {
			t.Errorf("%s: %v", id, r.Fields)
		}
	}
}

// TestMCPCodeNetwork checks that a session has no network unless asked, and that bounds on sessions hold.
func TestMCPCodeNetwork(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_MAX_SESSIONS_PER_CALLER=2")
	s := c.session("python")
	r := c.must("install_package", args{"session_id": s, "packages": []string{"left-pad-none"}})
	if r.field("success") != "false" || !strings.Contains(r.field("hint"), "package-managers") {
		t.Errorf("without a network: %v", r.Fields)
	}
	if r := c.call("install_package", args{"session_id": s, "packages": []string{"--index-url=http://a.test"}}); !r.IsError || !strings.Contains(r.Text, "not a name") {
		t.Errorf("an option as a name: %+v", r)
	}
	if r := c.execute(s, "import socket\ntry:\n  socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print('refused')"); r.field("stdout") != "refused\n" {
		t.Errorf("network: %v", r.Fields)
	}
	two := c.session("python")
	if r := c.call("create_session", args{}); !r.IsError || !strings.Contains(r.Text, s) || !strings.Contains(r.Text, two) {
		t.Errorf("a third session: %+v", r)
	}
	c.must("stop_session", args{"session_id": s})
	c.session("python")
}

// TestMCPCodeAsk checks that a name that no rule allows is put to the user at the client while code waits for it.
func TestMCPCodeAsk(t *testing.T) {
	onInternet(t, func(n *internet) {
		for _, c := range []struct {
			action string
			hello  bool
		}{{"decline", false}, {"accept", true}} {
			m := n.mcpUnstarted()
			m.cmd.Env = append(m.cmd.Env, "DEMESNE_TOOLS=code", "DEMESNE_PREPARED_SESSIONS=0")
			m.begin()
			m.elicit = c.action
			m.ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"elicitation": map[string]any{}}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
			m.tell("notifications/initialized", nil)
			s := m.must("create_session", args{"ask": true, "kernel": "demesne"}).field("session_id")
			r := m.must("execute_code", args{"session_id": s, "code": "import subprocess\nsubprocess.run(['curl', '-sS', 'http://good.test/'], capture_output=True, text=True).stdout"})
			if strings.Contains(r.value(), "hello from good.test") != c.hello || m.questions(`"good.test:80"`) != 1 {
				n.Errorf("%s: asked %d times, %v", c.action, m.questions(""), r.Fields)
			}
			if r := m.call("create_session", args{"allowed_domains": []string{"10.0.0.1"}}); !r.IsError {
				n.Errorf("an address: %v", r.Fields)
			}
			m.close()
		}
	})
}
