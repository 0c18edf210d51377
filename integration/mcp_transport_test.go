package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// feed gives a server its whole input at once, and returns its answers by id.
func (b *box) feed(input string) (map[string]string, result) {
	b.Helper()
	b.keepsJobs()
	cmd := b.command("demesne-mcp")
	cmd.Stdin = strings.NewReader(input)
	r := b.finish(cmd)
	answers := map[string]string{}
	for _, line := range strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n") {
		var m struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			b.Errorf("on stdout, and no message: %q", line)
		}
		answers[string(m.ID)] = line
	}
	return answers, r
}

// TestMCPDrainsAtEOF checks that each call is answered, however the input is formatted and however soon it ends.
func TestMCPDrainsAtEOF(t *testing.T) {
	b := newBox(t)
	call := `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"sleep 0.2; echo answered"}}}`
	var pretty strings.Builder
	for i := range 3 {
		raw := json.RawMessage(fmt.Sprintf(call, fmt.Sprint(10+i)))
		text, _ := json.MarshalIndent(raw, "", "\t")
		fmt.Fprintf(&pretty, "%s\n\n", text)
	}
	for _, c := range []struct {
		name, input string
		ids         []string
	}{
		{"compact", greeting + fmt.Sprintf(call, "2") + "\n" + fmt.Sprintf(call, `"x"`) + "\n", []string{"2", `"x"`}},
		{"pretty", greeting + pretty.String(), []string{"10", "11", "12"}},
		{"no newline", greeting + fmt.Sprintf(call, "2"), []string{"2"}},
		{"nonsense before it", greeting + "hello {\n[\n]]\n" + fmt.Sprintf(call, "2"), []string{"2"}},
	} {
		answers, r := b.feed(c.input)
		if r.code != 0 || r.stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", c.name, r.code, r.stderr)
		}
		for _, id := range append(c.ids, "1") {
			if answers[id] == "" || id != "1" && !strings.Contains(answers[id], "answered") {
				t.Errorf("%s: call %s: %q", c.name, id, answers[id])
			}
		}
	}
}

// TestMCPDiscover checks that server/discover is answered: Claude Code sends it first, and waits for any answer.
func TestMCPDiscover(t *testing.T) {
	b := newBox(t)
	answers, r := b.feed(`{"jsonrpc":"2.0","id":"d-1","method":"server/discover","params":{"protocolVersion":"2026-07-28"}}` + "\n" + greeting)
	if r.code != 0 || answers[`"d-1"`] == "" || !strings.Contains(answers["1"], `"serverInfo"`) {
		t.Errorf("%+v", answers)
	}
}

// TestMCPVerb checks that demesne mcp runs demesne-mcp with the same arguments. The environment variables of the
// first demesne are ignored.
func TestMCPVerb(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	b.extra = append(b.extra, "OPEN_SANDBOX_DOMAIN=nowhere:1", "OPEN_SANDBOX_API_KEY=x", "OPEN_SANDBOX_PROTOCOL=gopher")
	cmd := b.command("demesne", "mcp", "--tools", "files")
	cmd.Stdin = strings.NewReader(greeting + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo here"}}}`)
	if r := b.finish(cmd); r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, `"sandbox_grep"`) || !strings.Contains(r.stdout, `"stdout":"here\n"`) {
		t.Errorf("%+v", r)
	}
}

// untilTold is a script for a sandbox with /out. It waits for the function that [box.told] returns.
const untilTold = "touch /out/up; until test -e /out/go; do sleep 0.05; done; echo answered"

// told waits until a sandbox executes untilTold, and returns what ends the script.
func (b *box) told() (tell func()) {
	b.Helper()
	var dir string
	eventually(b, "the command to start", func() bool {
		for _, id := range names(b.out) {
			if dir = filepath.Join(b.out, id); exists(dir+"/up") && !exists(dir+"/go") {
				return true
			}
		}
		return false
	})
	return func() { os.WriteFile(dir+"/go", nil, 0o644) }
}

// TestMCPDrainsOnSignals checks that SIGINT, SIGTERM and SIGHUP act like an end of input.
func TestMCPDrainsOnSignals(t *testing.T) {
	b := newBox(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c := b.mcp()
		_, ch := c.start("sandbox_script", args{"command": untilTold})
		tell := b.told()
		c.cmd.Process.Signal(sig)
		tell()
		if r := c.await(ch); r.field("stdout") != "answered\n" {
			t.Errorf("%v: %+v", sig, r)
		}
		if code := c.wait(); code != 0 {
			t.Errorf("%v: exit %d", sig, code)
		}
	}
}

// TestMCPSecondSignal checks that a second signal ends the server without waiting for calls.
func TestMCPSecondSignal(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	_, ch := c.start("sandbox_script", args{"command": "sleep 3333"})
	eventually(t, "the command to start", func() bool { return sleepers("3333") == 1 })
	// Two signals merge into one if the second comes before the first is delivered.
	eventually(t, "its end", func() bool {
		c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.ended:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	if r := c.await(ch); !r.Lost {
		t.Errorf("%+v", r)
	}
	if code := c.wait(); code != 143 {
		t.Errorf("exit %d", code)
	}
}

// TestMCPProgress checks that a client that asked for progress is notified of the command's output.
func TestMCPProgress(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	_, ch := c.send("tools/call", args{"name": "sandbox_script", "arguments": args{"command": "echo half; while ! test -e go; do sleep 0.02; done"}, "_meta": args{"progressToken": "p"}})
	eventually(t, "a note of what was written last", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.notes, func(n note) bool {
			return n.Method == "notifications/progress" && strings.Contains(string(n.Params), `half`)
		})
	})
	for _, name := range names(b.out) {
		os.WriteFile(filepath.Join(b.out, name, "go"), nil, 0o644)
	}
	c.await(ch)
}

// web starts a server over HTTP.
func (b *box) web(args ...string) (addr string, cmd *exec.Cmd) {
	b.Helper()
	b.keepsJobs()
	cmd = b.command("demesne-mcp", args...)
	var errs syncBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(b, "the server to listen", func() bool { return strings.Contains(errs.String(), "listening on ") })
	_, addr, _ = strings.Cut(strings.TrimSpace(errs.String()), "listening on ")
	return addr, cmd
}

// webSession starts a server without a token, and begins a session with it.
func (b *box) webSession() (url, session string, cmd *exec.Cmd) {
	b.Helper()
	addr, cmd := b.web("--http", "127.0.0.1:0")
	url = "http://" + addr + "/mcp"
	hello, _, _ := strings.Cut(greeting, "\n")
	_, text := post(b, http.DefaultClient, url, hello, nil)
	session, _, _ = strings.Cut(text, "\n")
	return url, session, cmd
}

func post(t testing.TB, client *http.Client, url, body string, headers map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		req.Header.Set(k, v)
		if k == "Host" {
			req.Host = v
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	fmt.Fprint(&text, resp.Header.Get("Mcp-Session-Id"), "\n")
	buf := make([]byte, 1<<16)
	for {
		n, err := resp.Body.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return resp.StatusCode, text.String()
		}
	}
}

func TestMCPOverHTTP(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MCP_TOKEN=secret")
	addr, cmd := b.web("--http", "127.0.0.1:0")
	url := "http://" + addr + "/mcp"
	hello, _, _ := strings.Cut(greeting, "\n")
	auth := map[string]string{"Authorization": "Bearer secret"}
	for _, c := range []struct {
		name, key, value string
		want             int
	}{
		{"no token", "Authorization", "", 401}, {"another token", "Authorization", "Bearer secre", 401},
		{"rebound", "Host", "evil.example", 403}, {"a page", "Origin", "https://evil.example", 403},
	} {
		headers := map[string]string{"Authorization": "Bearer secret", c.key: c.value}
		if code, text := post(t, http.DefaultClient, url, hello, headers); code != c.want {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	code, text := post(t, http.DefaultClient, url, hello, auth)
	session, _, _ := strings.Cut(text, "\n")
	if code != 200 || session == "" || !strings.Contains(text, `"serverInfo"`) {
		t.Fatalf("initialize: %d %s", code, text)
	}
	auth["Mcp-Session-Id"] = session
	post(t, http.DefaultClient, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, auth)
	done := make(chan string)
	go func() {
		_, text := post(t, http.DefaultClient, url, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"`+untilTold+`"}}}`, auth)
		done <- text
	}()
	tell := b.told()
	cmd.Process.Signal(syscall.SIGTERM)
	tell()
	if text := <-done; !strings.Contains(text, `"stdout":"answered\n"`) {
		t.Errorf("the call under way: %s", text)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
}

// TestMCPOverHTTPSilent checks that a long call sends messages on the stream of its answer, before the client
// gives up waiting.
func TestMCPOverHTTPSilent(t *testing.T) {
	b := newBox(t)
	url, session, cmd := b.webSession()
	for meta, want := range map[string]string{`{}`: `"method":"ping"`, `{"progressToken":1}`: `"notifications/progress"`} {
		before := outputsOf(b)
		call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"while ! test -e go; do sleep 0.02; done; echo gone on"},"_meta":` + meta + `}}`
		req, err := http.NewRequest("POST", url, strings.NewReader(call))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req) // returns with the headers, before the command may continue
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data:") {
		}
		if !strings.Contains(lines.Text(), want) {
			t.Errorf("%s: %s, want %s", meta, lines.Text(), want)
		}
		// The message depends on the time only, and may come before the call has made its directory.
		eventually(t, "the directory of the call", func() bool {
			for _, name := range outputsOf(b) {
				if !slices.Contains(before, name) {
					return os.WriteFile(filepath.Join(b.out, name, "go"), nil, 0o644) == nil
				}
			}
			return false
		})
		var rest strings.Builder
		for lines.Scan() {
			rest.WriteString(lines.Text())
		}
		resp.Body.Close()
		if !strings.Contains(rest.String(), `"stdout":"gone on\n"`) {
			t.Errorf("%s: answered %s", meta, rest.String())
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
}

// TestMCPOverHTTPParallel makes 100 calls at once, each of which gets its own result.
func TestMCPOverHTTPParallel(t *testing.T) {
	b := newBox(t)
	url, session, cmd := b.webSession()
	headers := map[string]string{"Mcp-Session-Id": session}
	post(t, http.DefaultClient, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo %d"}}}`, 10+i, i)
			if code, text := post(t, http.DefaultClient, url, call, headers); code != 200 || !strings.Contains(text, fmt.Sprintf(`"stdout":"%d\n"`, i)) {
				t.Errorf("call %d: %d %s", i, code, text)
			}
		})
	}
	wg.Wait()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
}

func TestMCPOverUnixSocket(t *testing.T) {
	b := newBox(t)
	path := b.dir + "/s"
	for range 2 { // the second finds the socket that the killed first one left behind
		_, cmd := b.web("--http", "unix:"+path)
		if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("the socket: %v %v", st, err)
		}
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		hello, _, _ := strings.Cut(greeting, "\n")
		if code, text := post(t, client, "http://localhost/mcp", hello, nil); code != 200 {
			t.Errorf("initialize: %d %s", code, text)
		}
		client.CloseIdleConnections()
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// TestMCPArguments checks that a server that others can reach requires a token, and that invalid arguments are
// reported.
func TestMCPArguments(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	oneError := regexp.MustCompile(`^demesne-mcp: .+\n(hint: .+\n)?$`)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--version"}, 0, "demesne-mcp 0.1.0 ("},
		{[]string{"--help"}, 0, "Usage: demesne-mcp"},
		{[]string{"--http", "0.0.0.0:0"}, 1, "a bearer token is required"},
		{[]string{"--token-file", "/x"}, 2, "only with --http"},
		{[]string{"serve"}, 2, `unexpected argument "serve"`},
		{[]string{"--http", "127.0.0.1:0", "--token-file", "/nonexistent"}, 1, "read token: "},
		{[]string{"job", "job-x"}, 1, "job not found"},
	} {
		r := b.finish(b.command("demesne-mcp", c.args...))
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) || c.code != 0 && (r.stdout != "" || !oneError.MatchString(r.stderr)) {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
	b.extra = append(b.extra, "DEMESNE_MAX_JOBS=none")
	if r := b.finish(b.command("demesne-mcp")); r.code != 1 || !strings.Contains(r.stderr, `DEMESNE_MAX_JOBS "none": not a number of at least 1`) {
		t.Errorf("%+v", r)
	}
}
