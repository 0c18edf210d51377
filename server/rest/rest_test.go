package rest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"demesne/client"
	"demesne/runner"
	"demesne/server"
	"demesne/session"
)

// step is one request and what its answer has.
type step struct {
	call, body string // METHOD PATH
	status     int
	has        string
}

func (r *rig) steps(steps []step, headers ...string) {
	r.Helper()
	for _, s := range steps {
		method, path, _ := strings.Cut(s.call, " ")
		if status, text := r.send(method, path, s.body, headers...); status != s.status || !strings.Contains(text, s.has) {
			r.Errorf("%s %.200s: %d %.500s; not %d with %s", s.call, s.body, status, text, s.status, s.has)
		}
	}
}

// TestSandboxes checks the routes about the life of a sandbox.
func TestSandboxes(t *testing.T) {
	r := newRig(t)
	web := r.make("web")
	id := web.info.ID
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	web.info.PID = os.Getpid() // in place of a PID 1
	r.steps([]step{
		{"GET /v1/server", "", 200, `"version":"1.2.3","caller":"operator","operator":true,"host":false`},
		{"POST /v1/sandboxes", `{"name":"web"}`, 409, `"code":409`},
		{"POST /v1/sandboxes", `{"name":"-"}`, 422, `"location":"body.name"`},
		{"POST /v1/sandboxes", `{"limits":{"memory":-1}}`, 422, `"location":"body.limits.memory"`},
		{"POST /v1/sandboxes", `{"env":{"A=B":"x"}}`, 422, `"location":"body.env"`},
		{"POST /v1/sandboxes", `{"bogus":1}`, 422, `unexpected property`},
		{"POST /v1/sandboxes", `{`, 400, `"code":400`},
		{"GET /v1/sandboxes", "", 200, `{"items":[{"id":"` + id + `","name":"web"`},
		{"GET /v1/sandboxes?state=gone", "", 422, `"location":"query.state"`},
		{"GET /v1/sandboxes?limit=1001", "", 422, `"location":"query.limit"`},
		{"GET /v1/sandboxes?order=name", "", 422, `"location":"query.order"`},
		{"GET /v1/sandboxes?cursor=%2f", "", 422, `"location":"query.cursor"`},
		{"GET /v1/sandboxes?cursor=eA", "", 422, `"location":"query.cursor"`},
		{"GET /v1/sandboxes?name=we&state=running", "", 200, `{"items":[{"id":"` + id + `","name":"web"`},
		{"GET /v1/sandboxes?name=eb", "", 200, `{"items":[]}`},
		{"GET /v1/sandboxes?state=paused", "", 200, `{"items":[]}`},
		{"GET /v1/sandboxes?namespace=other", "", 200, `{"items":[]}`},
		{"GET /v1/sandboxes?x=1", "", 422, `"location":"query.x"`},
		{"GET /v1/sandboxes/web", "", 200, `"state":"running"`},
		{"GET /v1/sandboxes/nope", "", 404, `"code":404`},
		{"GET /v1/sandboxes/" + strings.Repeat("x", 200), "", 422, `"location":"path.id"`},
		{"GET /v1/sandboxes/a%2fb", "", 404, `no such sandbox`},
		{"POST /v1/sandboxes/web/pause", "", 200, `"state":"paused"`},
		{"POST /v1/sandboxes/web/resume", "", 200, `"state":"running"`},
		{"POST /v1/sandboxes/web/stop", "", 200, `"state":"stopped"`},
		{"GET /v1/sandboxes/web/usage", "", 200, `{"cpu_seconds":0`},
		{"POST /v1/sandboxes/web/start", "", 200, id},
		{"POST /v1/sandboxes/web/resume", "", 200, `"state":"running"`},
		{"GET /v1/sandboxes/web/usage", "", 200, `"processes":3`},
		{"GET /v1/sandboxes/web/receipt", "", 200, `"layers":[{"name":"seccomp","status":"held"}]`},
		{"GET /v1/sandboxes/web/processes", "", 200, `{"items":[{"pid":`},
		{"POST /v1/sandboxes/web/browser/browser_navigate", `{"arguments":{"url":"http://a"}}`, 200, `{"text":"` + id + ` browser_navigate map[url:http://a]","pictures":[{"mime_type":"image/png","data":"YQ=="}]}`},
		{"GET /v1/sandboxes/web/changes", "", 200, `{"path":"/a�","kind":"A"}`},
		{"PATCH /v1/sandboxes/web/limits", `{"memory":1048576,"cpus":0.5}`, 200, id},
		{"PATCH /v1/sandboxes/web/limits", `{"memory":8589934592}`, 200, `"warnings":["limits.memory: reduced from 8589934592 to 2147483648, the operator's maximum"]`},
		{"POST /v1/sandboxes", `{"name":"large","limits":{"memory":8589934592,"cpus":1}}`, 201, `"warnings":["limits.memory: reduced from 8589934592 to 2147483648, the operator's maximum"]`},
		{"DELETE /v1/sandboxes/large", "", 204, ""},
		{"PATCH /v1/sandboxes/web/limits", `{"disk":1}`, 422, `"location":"body.disk"`},
		{"PATCH /v1/sandboxes/web/limits", `{}`, 422, `required`},
		{"POST /v1/sandboxes/web/fork", `{"name":"copy"}`, 201, `"name":"copy"`},
		{"POST /v1/sandboxes/web/snapshot", `{}`, 201, `"state":"snapshot"`},
		{"DELETE /v1/sandboxes/copy", "", 204, ""},
		{"DELETE /v1/sandboxes/copy", "", 404, `"code":404`},
		{"GET /v1/nope", "", 404, `{"code":404,"message":"demesne does not serve GET /v1/nope","data":[]}`},
		{"POST /v1/server", "", 405, `{"code":405,"message":"demesne does not serve POST /v1/server","data":[]}`},
	})
	if calls := strings.Join(r.fake.calls, "\n"); !strings.Contains(calls, "{Memory:1048576 CPUs:0.5 ") {
		t.Errorf("limits: %s", calls)
	}
	if _, text := r.send("GET", "/v1/sandboxes/web", ""); strings.Contains(text, "/home/secret") {
		t.Errorf("a path of the host: %s", text)
	}
}

// TestCommands checks run and exec, collected and streamed.
func TestCommands(t *testing.T) {
	r := newRig(t)
	id := r.make("web").info.ID
	const hi = `{"command":"cat; echo $A >&2; exit 3","stdin":"hi","env":{"A":"b"}}`
	r.steps([]step{
		{"POST /v1/run", hi, 200, `"exit_code":3,"reason":"exited","stdout":{"text":"hi","bytes":2},"stderr":{"text":"b\n","bytes":2}`},
		{"POST /v1/sandboxes/web/exec", hi, 200, `"sandbox":"` + id + `","exit_code":3`},
		{"POST /v1/sandboxes/nope/exec", hi, 404, `"code":404`},
		{"POST /v1/run", `{"command":"true","timeout_ms":120000,"limits":{"memory":8589934592}}`, 200, `"warnings":["limits.memory: reduced from 8589934592 to 2147483648, the operator's maximum","timeout_ms: reduced from 120000 to 60000, the operator's maximum"]`},
		{"POST /v1/run/stream", `{"command":"true","limits":{"memory":8589934592}}`, 200, `"warnings":["limits.memory: reduced`},
		{"POST /v1/sandboxes/web/exec", `{"command":"true","timeout_ms":120000}`, 200, `"warnings":["timeout_ms: reduced from 120000 to 60000`},
		{"POST /v1/run", `{}`, 422, `"location":"body.command"`},
		{"POST /v1/run", `{"command":"a","argv":["b"]}`, 422, `"location":"body.argv"`},
		{"POST /v1/run", `{"command":"a\u0000"}`, 422, `NUL`},
		{"POST /v1/run", `{"command":"a","cwd":"b"}`, 422, `"location":"body.cwd"`},
		{"POST /v1/run", `{"command":"a","timeout_ms":-1}`, 422, `"location":"body.timeout_ms"`},
		{"POST /v1/run", `{"argv":["/nope"]}`, 400, `"code":400`},
		{"POST /v1/run/stream", `{"argv":["/nope"]}`, 400, `"code":400`},
		{"POST /v1/run/stream", `{"argv":[""]}`, 422, `"code":422`},
		{"POST /v1/sandboxes/nope/exec/stream", hi, 404, `"code":404`},
		{"POST /v1/run/stream", hi, 200, "event: start\ndata: {\"sandbox\":\"run\"}\n\nevent: chunk\ndata: {\"stream\":\""},
		{"POST /v1/sandboxes/web/exec/stream", hi, 200, "event: done\ndata: {\"sandbox\":\"" + id + "\",\"exit_code\":3"},
	})
	r.steps([]step{{"POST /v1/run", `{"argv":["/bin/echo","x y"],"limits":{"memory":7},"network":{"mode":"open","allow":["a.test"]}}`, 200, `"run":"RUN"`}})
	if c := r.fake.last.Create; c.Spec.Limits.Memory != 7 || c.Egress.Mode != "open" || len(c.Egress.Allow) != 1 {
		t.Errorf("the sandbox of run: %+v", c)
	}
	if status, text := r.send("POST", "/v1/run", `{"command":"true"}`, "Content-Type: text/plain"); status != 415 {
		t.Errorf("a form of another site: %d %s", status, text)
	}
	if status, text := r.send("POST", "/v1/run", `{"stdin":"`+strings.Repeat("x", server.MaxBody)+`"}`); status != 413 || !strings.Contains(text, `"code":413,"message":"the body has more than 8388608 bytes"`) {
		t.Errorf("a large body: %d %.200s", status, text)
	}
}

// chunks returns the output of a stream.
func chunks(t *testing.T, text string) (out []byte) {
	t.Helper()
	for _, part := range strings.Split(text, "\n\n") {
		data, ok := strings.CutPrefix(part, "event: chunk\ndata: ")
		if !ok {
			continue
		}
		var c client.Chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if c.Base64 != nil {
			out = append(out, c.Base64...)
		} else {
			out = append(out, c.Text...)
		}
	}
	return out
}

// TestGroups checks that a group belongs to the caller's namespace, and is removed as a whole.
func TestGroups(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"POST /v1/sandboxes", `{"group":"Shop"}`, 422, `"location":"body.group"`},
		{"POST /v1/sandboxes", `{"group":"localhost"}`, 422, `"location":"body.group"`},
		{"POST /v1/sandboxes", `{"name":"db","group":"shop"}`, 201, `"name":"db.shop"`},
		{"POST /v1/sandboxes", `{"name":"web","group":"shop"}`, 201, `"group":"shop"`},
		{"POST /v1/sandboxes", `{"name":"db","group":"other"}`, 201, `"name":"db.other"`},
		{"GET /v1/sandboxes/db.shop", "", 200, `"group":"shop"`},
		{"DELETE /v1/groups/none", "", 404, `it has no sandboxes`},
		{"DELETE /v1/groups/shop", "", 204, ""},
		{"GET /v1/sandboxes/db.shop", "", 404, ""},
		{"GET /v1/sandboxes/db.other", "", 200, ""},
	})
}

// TestUser checks which users a command may run as.
func TestUser(t *testing.T) {
	r := newRig(t)
	r.make("web")
	r.steps([]step{
		{"POST /v1/sandboxes/web/exec", `{"argv":["true"],"user":"a/b"}`, 422, `"location":"body.user"`},
		{"POST /v1/sandboxes/web/exec", `{"argv":["true"],"user":"1:x:2"}`, 422, `"location":"body.user"`},
		{"POST /v1/run", `{"argv":["true"],"user":"4294967295:-"}`, 422, `"location":"body.user"`},
	})
	for user, want := range map[string]runner.User{"7": {UID: 7, GID: 7}, "7:8": {UID: 7, GID: 8}} {
		var q session.Request
		if err := runAs(&q, user); err != nil || q.Run.Command.User == nil || *q.Run.Command.User != want || q.Create.User != "" {
			t.Errorf("%q: %+v, %v", user, q, err)
		}
	}
	var q session.Request
	if err := runAs(&q, "build"); err != nil || q.Run.Command.User != nil || q.Create.User != "build" {
		t.Errorf("a name: %+v, %v", q, err)
	}
}

// TestStreamBytes checks that a stream passes on every byte, and splits no character.
func TestStreamBytes(t *testing.T) {
	r := newRig(t)
	_, text := r.send("POST", "/v1/run/stream", `{"command":"printf 'a\\342'; sleep 0.05; printf '\\202'; sleep 0.05; printf '\\254b\\377\\342'"}`)
	if got := string(chunks(t, text)); got != "a\xe2\x82\xacb\xff\xe2" || strings.Contains(text, "�") {
		t.Errorf("%q\n%s", got, text)
	}
}

// TestStreamLeft checks that the command of a client that leaves ends.
func TestStreamLeft(t *testing.T) {
	r := newRig(t)
	s := r.make("web")
	req, _ := http.NewRequest("POST", r.http.URL+"/v1/sandboxes/web/exec/stream", strings.NewReader(`{"command":"echo $$ > pid; exec sleep 100"}`))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var pid []byte
	for end := time.Now().Add(time.Minute); len(pid) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		pid, _ = os.ReadFile(s.dir + "/pid")
	}
	resp.Body.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err != nil {
			return
		}
	}
	t.Errorf("process %s goes on", pid)
}

// TestFiles checks the routes of files and grep.
func TestFiles(t *testing.T) {
	r := newRig(t)
	s := r.make("web")
	const at = "POST /v1/sandboxes/web/files/"
	r.steps([]step{
		{at + "write", `{"path":"d/a.txt","content":"one\ntwo\n"}`, 200, `{"code":0,"message":"success","data":{"name":"a.txt","path":"/workspace/d/a.txt","type":"file"`},
		{at + "write", `{"path":"b","content":"/w==","base64":true}`, 200, `"size":1`},
		{at + "write", `{"path":"b","content":"?","base64":true}`, 422, `"location":"body.content"`},
		{at + "write", `{"path":"","content":""}`, 422, `"location":"body.path"`},
		{at + "write", `{"path":"a\u0000","content":""}`, 400, `"code":400`},
		{at + "read", `{"path":"d/a.txt"}`, 200, `"content":"one\ntwo\n","base64":false,"size":8}`},
		{at + "read", `{"path":"d/a.txt","offset":4,"limit":3}`, 200, `"content":"two","base64":false,"size":8,"truncated":true}`},
		{at + "read", `{"path":"d/a.txt","offset":100}`, 200, `"content":"","base64":false,"size":8}`},
		{at + "read", `{"path":"b"}`, 200, `"content":"/w==","base64":true`},
		{at + "read", `{"path":"d"}`, 400, `"code":400`},
		{at + "read", `{"path":"nope"}`, 404, `"code":404,"message":"`},
		{at + "edit", `{"path":"d/a.txt","old_string":"two","new_string":"three"}`, 200, `"data":{"replaced":1,"line":2}`},
		{at + "edit", `{"path":"d/a.txt","old_string":"two","new_string":"three"}`, 400, `"code":400`},
		{at + "list", `{}`, 200, `"path":"/workspace/b"`},
		{at + "list", `{"path":"/workspace","depth":2}`, 200, `"path":"/workspace/d/a.txt"`},
		{at + "mkdir", `{"path":"e/f"}`, 200, `"is_dir":true`},
		{at + "mkdir", `{"path":"e/f"}`, 409, `"code":409`},
		{at + "move", `{"source":"d/a.txt","destination":"e/c.txt"}`, 200, `"path":"/workspace/e/c.txt"`},
		{at + "move", `{"source":"d/a.txt","destination":"e/c.txt"}`, 404, `"code":404`},
		{at + "copy", `{"source":"e","destination":"g"}`, 200, `"path":"/workspace/g"`},
		{at + "exists", `{"path":"g/c.txt"}`, 200, `"data":{"exists":true,"file":{"name":"c.txt"`},
		{at + "exists", `{"path":"nope"}`, 200, `"data":{"exists":false}`},
		{at + "glob", `{"pattern":"*.txt"}`, 200, `"/workspace/e/c.txt"`},
		{at + "delete", `{"path":"g"}`, 200, `"exists":false`},
		{at + "delete", `{"path":"g"}`, 404, `"code":404`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"^o|three"}`, 200, `"data":{"output":"/workspace/e/c.txt:1:one\n/workspace/e/c.txt:2:three\n","lines":[{"path":"/workspace/e/c.txt","line":1,"text":"one"}`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"e","max_line_length":2}`, 200, `:on\n`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"e","limit":1}`, 200, `"matches":1,"truncated":true`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"e","output_mode":"count"}`, 200, `"output":"/workspace/e/c.txt:2\n"`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"("}`, 400, `"code":400`},
		{"POST /v1/sandboxes/web/grep", `{"pattern":"e","output_mode":"x"}`, 422, `"location":"body.output_mode"`},
		{"PUT /v1/sandboxes/web/files/raw?path=big", strings.Repeat("x", 2*server.MaxBody), 200, `"size":16777216`},
		{"PUT /v1/sandboxes/web/files/raw", "x", 422, `"location":"query.path"`},
		{"PUT /v1/sandboxes/nope/files/raw?path=x", "x", 404, `"code":404`},
		{"GET /v1/sandboxes/web/files/raw?path=e/c.txt", "", 200, "one\nthree\n"},
		{"GET /v1/sandboxes/web/files/archive?path=e", "", 200, "one\nthree\n"}, {"GET /v1/sandboxes/nope/files/archive?path=e", "", 404, `"code":404`},
		{"GET /v1/sandboxes/web/files/raw?path=nope", "", 404, `"code":404`},
		{"GET /v1/sandboxes/web/files/raw?path=e", "", 400, `"code":400`},
	})
	resp, err := http.Get(r.http.URL + "/v1/sandboxes/web/files/raw?path=e/c.txt")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if h := resp.Header; h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Disposition") != "attachment; filename=c.txt" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a browser may show it: %v", h)
	}
	content := base64.StdEncoding.EncodeToString(make([]byte, maxContent))
	r.steps([]step{{at + "write", `{"path":"large","base64":true,"content":"` + content + `"}`, 200, `"size":8388608`}})
	os.WriteFile(s.dir+workspace+"/larger", make([]byte, maxContent+1), 0o600)
	r.steps([]step{{at + "read", `{"path":"larger"}`, 200, `"size":8388609,"truncated":true`}})
}

// TestEgress checks the routes about rules, questions and the log.
func TestEgress(t *testing.T) {
	r := newRig(t)
	s := r.make("web")
	r.steps([]step{
		{"GET /v1/sandboxes/web/egress", "", 200, `{"mode":"open"}`},
		{"PUT /v1/sandboxes/web/egress", `{"mode":"none","deny":["b.test"]}`, 200, `{"mode":"open"}`},
		{"POST /v1/sandboxes/web/egress/allow", `{"rules":["a.test"]}`, 200, `{"mode"`},
		{"POST /v1/sandboxes/web/egress/deny", `{"rules":[]}`, 422, `"location":"body.rules"`},
		{"POST /v1/sandboxes/web/egress/deny", `{"rules":["c.test"]}`, 200, `{"mode"`},
		{"GET /v1/sandboxes/web/egress/log?follow=false", "", 200, "event: decision\ndata: {\"time\":\"0001-01-01T00:00:00Z\",\"via\":\"\",\"host\":\"a.test\",\"port\":443,\"verdict\":\"denied\""},
		{"GET /v1/egress/questions", "", 200, `{"items":[]}`},
		{"POST /v1/egress/questions/x/allow", "", 404, `"code":404`},
	})
	for _, want := range []string{"Mode:none Allow:[] Deny:[b.test]", "[a.test] []", "[] [c.test]"} {
		if calls := strings.Join(r.fake.calls, "\n"); !strings.Contains(calls, want) {
			t.Errorf("no %q in\n%s", want, calls)
		}
	}
	for verb, want := range map[string]bool{"allow": true, "deny": false} {
		answer := make(chan [2]bool, 2)
		for range 2 { // two connections to one name are one question
			go func() {
				allow, answered := r.fake.ask(runner.Question{Sandbox: s.info.ID, Name: "q.test", Port: 443})
				answer <- [2]bool{allow, answered}
			}()
		}
		for waiting("(*questions).ask(") < 2 {
			time.Sleep(time.Millisecond)
		}
		id := r.api.questions.list()[0].ID
		r.steps([]step{
			{"GET /v1/egress/questions", "", 200, `"name":"q.test","port":443`},
			{"POST /v1/egress/questions/" + id + "/" + verb, "", 200, `"verdict":"`},
			{"POST /v1/egress/questions/" + id + "/" + verb, "", 404, `"code":404`},
		})
		for range 2 {
			if got := <-answer; got != [2]bool{want, true} {
				t.Errorf("%s: %v", verb, got)
			}
		}
	}
}

// waiting counts the goroutines that wait in a select of that function.
func waiting(function string) (n int) {
	b := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if state, stack, _ := strings.Cut(g, "\n"); strings.Contains(state, "[select") && strings.Contains(stack, function) {
			n++
		}
	}
	return n
}

// TestQuestions checks the bound of questions and their stream.
func TestQuestions(t *testing.T) {
	r := newRig(t)
	s := r.make("web")
	req, _ := http.NewRequest("GET", r.http.URL+"/v1/egress/questions/stream", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for port := range uint16(maxAsked) {
		go r.fake.ask(runner.Question{Sandbox: s.info.ID, Name: "q.test", Port: port + 1})
	}
	for len(r.api.questions.list()) < maxAsked {
		time.Sleep(time.Millisecond)
	}
	if _, answered := r.fake.ask(runner.Question{Sandbox: s.info.ID, Name: "more.test"}); answered {
		t.Error("a sandbox may have any number of questions")
	}
	for _, q := range r.api.questions.list() {
		r.steps([]step{{"POST /v1/egress/questions/" + q.ID + "/deny", "", 200, "denied"}})
	}
	buf, text := make([]byte, 4096), ""
	for strings.Count(text, "event: answered") < maxAsked {
		n, err := resp.Body.Read(buf)
		if text += string(buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(text, "event: question"); n != maxAsked {
		t.Errorf("%d questions", n)
	}
}

// TestPorts checks that a published port leads into its sandbox, not on the server's own address, and ends with it.
func TestPorts(t *testing.T) {
	r := newRig(t)
	r.make("web")
	r.steps([]step{
		{"GET /v1/sandboxes/web/ports", "", 200, `{"items":[]}`},
		{"POST /v1/sandboxes/web/ports", `{"to":0}`, 422, `"location":"body.to"`},
		{"POST /v1/sandboxes/web/ports", `{"to":70000}`, 422, `"location":"body`},
		{"DELETE /v1/sandboxes/web/ports/80", "", 404, `"code":404`},
	})
	_, text := r.send("POST", "/v1/sandboxes/web/ports", `{"to":80}`)
	var p client.Port
	if err := json.Unmarshal([]byte(text), &p); err != nil || !strings.HasPrefix(p.Listen, "127.0.0.2:") || p.To != 80 {
		t.Fatalf("%v %s", err, text)
	}
	r.steps([]step{
		{"POST /v1/sandboxes/web/ports", `{"to":80}`, 201, p.Listen},
		{"GET /v1/sandboxes/web/ports", "", 200, p.Listen},
		{"GET /v1/sandboxes/web", "", 200, p.Listen},
	})
	c, err := net.Dial("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "there")
	if got, _ := io.ReadAll(c); string(got) != "hello there" {
		t.Errorf("%q", got)
	}
	r.steps([]step{{"DELETE /v1/sandboxes/web/ports/80", "", 204, ""}, {"POST /v1/sandboxes/web/ports", `{"to":81}`, 201, `"to":81`}})
	if _, err := net.Dial("tcp", p.Listen); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it still listens: %v", err)
	}
	r.steps([]step{{"DELETE /v1/sandboxes/web", "", 204, ""}})
	for range 50 { // a port and the removal at once
		r.make("web")
		var both sync.WaitGroup
		both.Go(func() { r.send("POST", "/v1/sandboxes/web/ports", `{"to":80}`) })
		both.Go(func() { r.send("DELETE", "/v1/sandboxes/web", "") })
		both.Wait()
	}
	if n := len(r.api.published.all); n != 0 {
		t.Errorf("%d ports of no sandbox", n)
	}
}

// TestImages checks the routes of images, and that only the operator removes one.
func TestImages(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"GET /v1/images", "", 200, `{"items":[{"names":["docker.io/library/debian:latest"]`},
		{"POST /v1/images/pull", `{"name":"debian"}`, 200, "event: progress\ndata: {\"message\":\"fetching\"}\n\nevent: done\ndata: {\"names\":[\"debian\"]"},
		{"POST /v1/images/pull", `{"name":"nope"}`, 400, `"code":400`},
		{"POST /v1/images/pull", `{"name":"late"}`, 200, `/home/secret/store`},
		{"DELETE /v1/images?name=debian", "", 204, ""},
		{"DELETE /v1/images", "", 422, `"location":"query.name"`},
	})
	r.steps([]step{
		{"POST /v1/images/pull", `{"name":"late"}`, 200, `"message":"internal error`},
		{"DELETE /v1/images?name=debian", "", 403, `"code":403`},
	}, "Caller: team")
	if _, text := r.send("POST", "/v1/images/pull", `{"name":"late"}`, "Caller: team"); strings.Contains(text, "/home") {
		t.Errorf("a path of the host: %s", text)
	}
}

// TestNamespaces checks that a caller finds no sandbox of another one, in any route, and that errors of the server show it
// no path of the host.
func TestNamespaces(t *testing.T) {
	r := newRig(t)
	id := r.make("web", "Caller: a").info.ID
	go r.fake.ask(runner.Question{Sandbox: id, Name: "q.test", Port: 1})
	for len(r.api.questions.list()) == 0 {
		time.Sleep(time.Millisecond)
	}
	question := r.api.questions.list()[0].ID
	for path, item := range r.api.api.OpenAPI().Paths {
		if !strings.HasPrefix(path, "/v1/sandboxes/{id}") {
			continue
		}
		at := strings.NewReplacer("{id}", id, "{port}", "80").Replace(path)
		for method, body := range map[string]string{"GET": "", "DELETE": "", "POST": bodies[path[strings.LastIndex(path, "/")+1:]], "PUT": `{"mode":"none"}`, "PATCH": `{"cpus":1}`} {
			if op := map[string]any{"GET": item.Get, "DELETE": item.Delete, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch}[method]; op == nil || isNil(op) {
				continue
			}
			if strings.HasSuffix(path, "raw") || strings.HasSuffix(path, "archive") {
				at += "?path=x"
			}
			status, text := r.send(method, at, body, "Caller: b")
			if status != 404 || !strings.Contains(text, "no such sandbox") {
				t.Errorf("%s %s: %d %s", method, at, status, text)
			}
		}
	}
	r.steps([]step{
		{"GET /v1/sandboxes", "", 200, `{"items":[]}`}, {"GET /v1/egress/questions", "", 200, `{"items":[]}`},
		{"POST /v1/egress/questions/" + question + "/allow", "", 404, `"code":404`},
		{"GET /v1/server", "", 200, `"caller":"b","namespace":"b","operator":false`},
	}, "Caller: b")
	r.steps([]step{{"GET /v1/sandboxes", "", 200, id}, {"POST /v1/egress/questions/" + question + "/deny", "", 200, "denied"}}, "Caller: a")
	r.fake.fails = errors.New("open /home/secret: broken")
	r.steps([]step{{"GET /v1/sandboxes/x", "", 500, `internal error`}}, "Caller: a")
	r.steps([]step{{"GET /v1/sandboxes/x", "", 500, `/home/secret`}})
}

// bodies are valid requests by the end of a path.
var bodies = map[string]string{
	"{tool}": `{}`,
	"exec":   `{"command":"x"}`, "stream": `{"command":"x"}`, "fork": `{}`, "snapshot": `{}`, "ports": `{"to":1}`, "allow": `{"rules":["a"]}`, "deny": `{"rules":["a"]}`,
	"grep": `{"pattern":"x"}`, "glob": `{"pattern":"x"}`, "read": `{"path":"x"}`, "write": `{"path":"x","content":""}`, "edit": `{"path":"x","old_string":"a","new_string":"b"}`,
	"list": `{}`, "mkdir": `{"path":"x"}`, "delete": `{"path":"x"}`, "exists": `{"path":"x"}`, "move": `{"source":"x","destination":"y"}`, "copy": `{"source":"x","destination":"y"}`,
}

// TestTerminal checks a terminal by WebSocket.
func TestTerminal(t *testing.T) {
	r := newRig(t)
	r.make("web")
	at := "ws" + strings.TrimPrefix(r.http.URL, "http") + "/v1/sandboxes/web/terminal"
	c, _, err := websocket.Dial(t.Context(), at+"?rows=30&cols=90", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	read := func() string {
		_, b, err := c.Read(t.Context())
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	expect := func(kind websocket.MessageType, send, want string) {
		t.Helper()
		if send != "" {
			c.Write(t.Context(), kind, []byte(send))
		}
		if got := read(); got != want {
			t.Errorf("%s: %q, not %q", send, got, want)
		}
	}
	expect(0, "", `{"type":"note","exit_code":0,"message":"the operator's maximum ends this program after 1m0s"}`)
	expect(websocket.MessageBinary, "one\n", "90x30 one\n")
	expect(websocket.MessageText, `{"type":"input","data":"two\n"}`, "90x30 two\n")
	c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"resize","rows":5,"cols":7}`))
	expect(websocket.MessageBinary, "three\n", "7x5 three\n")
	expect(websocket.MessageText, `{"type":"ping"}`, `{"type":"pong","exit_code":0}`)
	expect(websocket.MessageText, `{"type":"nonsense"}`, `{"type":"error","exit_code":0,"message":"not a message"}`)
	expect(websocket.MessageText, `{`, `{"type":"error","exit_code":0,"message":"not a message"}`)
	expect(websocket.MessageBinary, "exit\n", `{"type":"exit","exit_code":3,"reason":"exited"}`)
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v", err)
	}
	if _, resp, err := websocket.Dial(t.Context(), strings.Replace(at, "web", "nope", 1), nil); err == nil || resp == nil || resp.StatusCode != 404 {
		t.Errorf("no sandbox: %v", err)
	}
	if _, resp, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://evil.example"}}}); err == nil || resp == nil || resp.StatusCode != 403 {
		t.Errorf("another site's page: %v", err)
	}
	if c, _, err = websocket.Dial(t.Context(), at, nil); err != nil {
		t.Fatal(err)
	}
	read() // the note
	expect(websocket.MessageBinary, "x\n", "80x24 x\n")
	r.steps([]step{{"GET /v1/sandboxes/web/terminal", "", 426, ""}})
}
