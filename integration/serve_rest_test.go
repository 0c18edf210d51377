package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"

	"demesne/integration/fixture"
)

// rest is a client of /v1.
type rest struct {
	*testing.T
	api *apiServer
}

func (c rest) request(ctx context.Context, method, path, body string) *http.Response {
	c.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.api.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.api.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatalf("%s %s: %v\nserver: %s", method, path, err, c.api.said())
	}
	return resp
}

// do sends a request, checks the status and that the answer has a text, and returns the answer.
func (c rest) do(call, body string, status int, has string) string {
	c.Helper()
	method, path, _ := strings.Cut(call, " ")
	resp := c.request(c.Context(), method, path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || !strings.Contains(string(text), has) {
		c.Errorf("%s %.200s: %d %.500s %v; not %d with %s", call, body, resp.StatusCode, text, err, status, has)
	}
	return string(text)
}

// exec runs a command in a sandbox and returns its stdout.
func (c rest) exec(sandbox, command string) string {
	c.Helper()
	body, _ := json.Marshal(map[string]string{"command": command})
	var r struct{ Stdout struct{ Text string } }
	json.Unmarshal([]byte(c.do("POST /v1/sandboxes/"+sandbox+"/exec", string(body), 200, "")), &r)
	return strings.TrimSpace(r.Stdout.Text)
}

// TestServeREST uses each group of routes of /v1 with real sandboxes.
func TestServeREST(t *testing.T) {
	b := newBox(t)
	api := b.serveAPI("--egress", "open", "--memory", "1g")
	c := rest{t, api}
	c.do("POST /v1/run", `{"command":"cat; echo err >&2; exit 3","stdin":"hi"}`, 200, `"exit_code":3,"reason":"exited","stdout":{"text":"hi","bytes":2},"stderr":{"text":"err\n","bytes":4}`)
	c.do("POST /v1/run", `{"command":"sleep 60","timeout_ms":100}`, 200, `"exit_code":124,"reason":"timed-out"`)
	c.do("POST /v1/run", `{"argv":["/nope"]}`, 400, `"code":400`)
	c.do("POST /v1/run", `{"command":"true","image":"dir:/etc"}`, 400, `of the host`)
	c.do("POST /v1/run", `{"command":"true","image":"docker-archive:/etc/passwd"}`, 400, `of the host`)
	c.do("POST /v1/run/stream", `{"command":"echo one; sleep 0.1; echo two"}`, 200, "two\\n\"}\n\nevent: done\n")
	anyone := rest{t, &apiServer{url: api.url}}
	anyone.do("GET /docs", "", 200, `<script src="/docs/docs.js"`)
	anyone.do("GET /docs/docs.js", "", 200, `openapi.json`)
	anyone.do("GET /v1/openapi.json", "", 200, `"openapi": "3.1.0"`)
	anyone.do("POST /v1/openapi.json", "", 401, `{"code":401,`)
	c.do("POST /v1/sandboxes", `{"name":"web","env":{"A":"b"},"network":{"ask":true}}`, 201, `"name":"web","state":"running"`)
	if got := c.exec("web", `echo $A; pwd`); got != "b\n/workspace" {
		t.Errorf("%q", got)
	}
	t.Run("files", c.files)
	t.Run("limits", c.limits)
	t.Run("life", c.life)
	t.Run("terminal", c.terminal)
	t.Run("ports", c.ports)
	t.Run("left", c.left)
	t.Run("questions", func(t *testing.T) { rest{t, api}.questions("web") })
	t.Run("killed", func(t *testing.T) {
		api.stop(syscall.SIGKILL)
		c := rest{t, b.serveAPI("--egress", "open")}
		if got := c.exec("web", `cat n/a.txt`); got != "kept" {
			t.Errorf("%q", got)
		}
		c.questions("web") // the sandbox's creator is gone
		for _, name := range []string{"web", "fork", "shot", "other"} {
			c.do("DELETE /v1/sandboxes/"+name, "", 204, "")
		}
		c.do("GET /v1/sandboxes", "", 200, `{"items":[]}`)
	})
	if out, err := os.ReadFile(b.home + "/.demesne/server/token"); err == nil && strings.Contains(api.said(), strings.TrimSpace(string(out))) {
		t.Error("the messages have the token")
	}
}

// in returns the client for a subtest.
func (c rest) in(t *testing.T) rest { return rest{t, c.api} }

func (c rest) files(t *testing.T) {
	c = c.in(t)
	const at = "POST /v1/sandboxes/web/files/"
	c.do(at+"write", `{"path":"n/a.txt","content":"one\ntwo\n"}`, 200, `"path":"/workspace/n/a.txt"`)
	c.do(at+"read", `{"path":"n/a.txt"}`, 200, `"content":"one\ntwo\n"`)
	c.do(at+"read", `{"path":"/etc/shadow-none"}`, 404, `"code":404`)
	c.do(at+"edit", `{"path":"n/a.txt","old_string":"two","new_string":"three"}`, 200, `"replaced":1`)
	c.do("POST /v1/sandboxes/web/grep", `{"pattern":"thr"}`, 200, `"output":"/workspace/n/a.txt:2:three\n"`)
	c.do(at+"copy", `{"source":"n","destination":"m"}`, 200, `"path":"/workspace/m"`)
	c.do(at+"glob", `{"pattern":"**/*.txt"}`, 200, `"/workspace/m/a.txt","/workspace/n/a.txt"`)
	c.do(at+"delete", `{"path":"m"}`, 200, `"code":0`)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	c.do("PUT /v1/sandboxes/web/files/raw?path=big", string(big), 200, `"size":16777216`)
	c.do(at+"read", `{"path":"big","limit":3}`, 200, `"content":"012","base64":false,"size":16777216,"truncated":true`)
	if got := c.do("GET /v1/sandboxes/web/files/raw?path=big", "", 200, ""); got != string(big) {
		t.Errorf("the download has %d bytes", len(got))
	}
	c.exec("web", "echo old > kept")
	for _, name := range []string{"kept", "fresh"} {
		c.cutUpload("/v1/sandboxes/web/files/raw?path=" + name)
	}
	if got := c.exec("web", "cat kept; rm kept; ls -A"); got != "old\nbig\nn" {
		t.Errorf("after uploads that broke off: %q", got)
	}
	c.exec("web", "ln -s /nowhere broken; mkfifo pipe")
	c.do(at+"read", `{"path":"broken"}`, 404, `"code":404`)
	c.do(at+"read", `{"path":"pipe"}`, 400, `"code":400`)
	c.do(at+"list", `{}`, 200, `"type":"link"`)
	c.do("GET /v1/sandboxes/web/files/archive?path=nowhere", "", 404, `"code":404`)
	var names []string
	for r := tar.NewReader(strings.NewReader(c.do("GET /v1/sandboxes/web/files/archive?path=.", "", 200, ""))); ; {
		h, err := r.Next()
		if err != nil {
			if err != io.EOF {
				t.Errorf("the archive: %v", err)
			}
			break
		}
		names = append(names, fmt.Sprint(h.Name, h.Size))
	}
	if fmt.Sprint(names) != "[workspace/0 workspace/big16777216 workspace/n/0 workspace/n/a.txt10]" { // without the link and the pipe
		t.Errorf("the archive has %q", names)
	}
	c.do("GET /v1/sandboxes/web/changes", "", 200, `{"path":"/workspace/n/a.txt","kind":"A"}`)
	c.do(at+"write", `{"path":"n/a.txt","content":"kept"}`, 200, `"size":4`)
}

// cutUpload sends half of a file, of which the server has taken a part, and disconnects.
func (c rest) cutUpload(path string) {
	c.Helper()
	half := bytes.NewReader(make([]byte, 12<<20))
	req, err := http.NewRequestWithContext(c.Context(), "PUT", c.api.url+path, io.MultiReader(half, iotest.ErrReader(errors.New("cut"))))
	if err != nil {
		c.Fatal(err)
	}
	req.ContentLength = 24 << 20
	req.Header.Set("Authorization", "Bearer "+c.api.key)
	if resp, err := http.DefaultClient.Do(req); err == nil || half.Len() > 0 {
		c.Errorf("%s: %v, %v; %d bytes were not sent", path, resp, err, half.Len())
	}
}

// limits checks that a limit that changes holds, and that none passes the operator's.
func (c rest) limits(t *testing.T) {
	c = c.in(t)
	c.do("PATCH /v1/sandboxes/web/limits", `{"memory":107374182400}`, 200, `"limits":{"memory":1073741824,`)
	c.do("PATCH /v1/sandboxes/web/limits", `{"memory":67108864,"cpus":1}`, 200, `"limits":{"memory":67108864,"cpus":1,`)
	c.do("GET /v1/sandboxes/web/receipt", "", 200, `{"name":"memory","value":"67108864"`)
	c.do("POST /v1/sandboxes", `{"name":"other"}`, 201, `"memory":1073741824`)
	c.do("PATCH /v1/sandboxes/other/limits", `{"memory":1}`, 400, `below the 4 MiB`)
	c.do("PATCH /v1/sandboxes/other/limits", `{"pids":100000}`, 200, `"pids":512`)
	const use = `{"argv":["python3","-c","len(b'x' * int(3e8))"]}`
	c.do("POST /v1/sandboxes/other/exec", use, 200, `"exit_code":0`)
	c.do("PATCH /v1/sandboxes/other/limits", `{"memory":67108864}`, 200, `"memory":67108864`)
	if text := c.do("POST /v1/sandboxes/other/exec", use, 200, `"exit_code"`); strings.Contains(text, `"exit_code":0`) {
		t.Errorf("300 MB in 64 MiB: %s", text)
	}
	c.do("PATCH /v1/sandboxes/web/limits", `{"memory":1073741824}`, 200, `"memory":1073741824`)
}

func (c rest) life(t *testing.T) {
	c = c.in(t)
	c.do("POST /v1/sandboxes/web/pause", "", 200, `"state":"paused"`)
	c.do("POST /v1/sandboxes/web/resume", "", 200, `"state":"running"`)
	c.do("GET /v1/sandboxes/web/usage", "", 200, `"memory_bytes":`)
	c.do("POST /v1/sandboxes/web/fork", `{"name":"fork"}`, 201, `"name":"fork"`)
	c.do("POST /v1/sandboxes/web/snapshot", `{"name":"shot"}`, 201, `"state":"snapshot"`)
	c.do("POST /v1/sandboxes/web/fork", `{"name":"fork"}`, 409, `"code":409`)
	if got := c.exec("fork", "cat n/a.txt"); got != "kept" {
		t.Errorf("%q", got)
	}
	c.do("POST /v1/sandboxes/fork/stop", "", 200, `"state":"stopped"`)
	c.do("GET /v1/sandboxes/fork/receipt", "", 409, `"code":409`)
	c.do("POST /v1/sandboxes/fork/start", "", 200, `"state":"running"`)
	c.do("POST /v1/sandboxes/fork/stop", "", 200, `"state":"stopped"`)
	c.do("PATCH /v1/sandboxes/fork/limits", `{"cpus":1}`, 200, `"state":"running"`)
	c.do("GET /v1/images", "", 200, `"items":[`)
	c.do("GET /v1/openapi.json", "", 200, `"openapi"`)
}

func (c rest) terminal(t *testing.T) {
	c = c.in(t)
	ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(c.api.url, "http")+"/v1/sandboxes/web/terminal?rows=7&cols=90",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.api.key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	var shown strings.Builder
	send := func(kind websocket.MessageType, text, until string) {
		t.Helper()
		if err := ws.Write(t.Context(), kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(shown.String(), until) {
			_, b, err := ws.Read(t.Context())
			if err != nil {
				t.Fatalf("%v after %q", err, shown.String())
			}
			shown.Write(b)
		}
	}
	// Bash's readline reads the size and sets it again before it shows its prompt: a new size must come later.
	send(websocket.MessageBinary, "PS1='pro''mpt>'; tty; stty size; echo $((6*7))\r", "prompt>")
	if s := shown.String(); !strings.Contains(s, "/dev/pts/") || !strings.Contains(s, "7 90") || !strings.Contains(s, "42\r\n") {
		t.Errorf("%q", s)
	}
	send(websocket.MessageText, `{"type":"resize","rows":9,"cols":33}`, "")
	send(websocket.MessageText, `{"type":"input","data":"stty size\r"}`, "9 33")
	send(websocket.MessageBinary, "exit 5\r", `{"type":"exit","exit_code":5,"reason":"exited","cpu_seconds":`)
}

// ports checks that a published port leads to a server in the sandbox.
func (c rest) ports(t *testing.T) {
	c = c.in(t)
	text := c.do("POST /v1/sandboxes/web/ports", `{"to":8000}`, 201, `"listen":"127.0.0.2:`)
	var p struct{ Listen string }
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	dialed, err := net.Dial("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	c.exec("web", `(echo 'import socket; s = socket.create_server(("127.0.0.1", 8000)); c, _ = s.accept(); c.sendall(c.recv(9) + b" there"); c.close()' | python3 - >/dev/null 2>&1 &)`)
	io.WriteString(dialed, "hello")
	dialed.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(dialed); string(got) != "hello there" {
		t.Errorf("%q %v", got, err)
	}
	c.do("DELETE /v1/sandboxes/web/ports/8000", "", 204, "")
}

// left checks that the command of a client that leaves is killed.
func (c rest) left(t *testing.T) {
	c = c.in(t)
	ctx, cancel := context.WithCancel(t.Context())
	resp := c.request(ctx, "POST", "/v1/sandboxes/web/exec/stream", `{"command":"echo begun; exec sleep 4321"}`)
	buf := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "begun"); {
		n, err := resp.Body.Read(buf)
		if text += string(buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	resp.Body.Close()
	eventually(t, "the command to end", func() bool {
		return c.exec("web", `for p in /proc/[0-9]*; do [ "$(tr '\0' ' ' <$p/cmdline)" = "sleep 4321 " ] && echo $p; done; true`) == ""
	})
}

// questions answers two questions of a sandbox, and reads its log.
func (c rest) questions(sandbox string) {
	c.Helper()
	for i, verb := range []string{"deny", "allow"} {
		name := fmt.Sprintf("q%d-%d.test", i, time.Now().UnixNano())
		done := make(chan string, 1)
		go func() {
			done <- c.exec(sandbox, `python3 -c 'import socket; socket.create_connection(("`+name+`", 443))' 2>&1 | tail -1`)
		}()
		var id string
		fixture.Poll(patience, func() bool {
			var page struct{ Items []struct{ ID, Name string } }
			json.Unmarshal([]byte(c.do("GET /v1/egress/questions", "", 200, `"items"`)), &page)
			for _, q := range page.Items {
				if q.Name == name {
					id = q.ID
				}
			}
			return id != ""
		})
		if id == "" {
			c.Fatalf("no question about %s; the command: %s", name, <-done)
		}
		c.do("POST /v1/egress/questions/"+id+"/"+verb, "", 200, `"verdict":"`)
		c.Logf("%s: %s", verb, <-done)
		for end := time.Now().Add(time.Minute); !strings.Contains(c.do("GET /v1/sandboxes/"+sandbox+"/egress", "", 200, ""), `"`+name+`:`); {
			if time.Now().After(end) {
				c.Fatalf("%s: no rule for %s", verb, name)
			}
		}
		c.do("GET /v1/sandboxes/"+sandbox+"/egress/log?follow=false", "", 200, `"host":"`+name+`"`)
	}
}
