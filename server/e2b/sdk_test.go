package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	builder "demesne/build"
	"demesne/runner"
)

// TestUnreachable checks that the error about a port has the form that E2B's proxy gives it.
func TestUnreachable(t *testing.T) {
	r := newRig(t)
	live, gone := r.make(`{}`), r.make(`{}`)
	r.control("DELETE", "/sandboxes/"+gone.ID, "")
	for id, want := range map[string]string{
		gone.ID: fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, gone.ID),
		live.ID: fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox is running but the port does not answer: connection refused","port":3000,"code":502}`, live.ID),
	} {
		if resp, text := r.send("GET", "/", "", "Host: 3000-"+id+".localhost"); resp.StatusCode != http.StatusBadGateway || strings.TrimSpace(text) != want {
			t.Errorf("%d %s, want %s", resp.StatusCode, text, want)
		}
	}
}

// TestMaskHost checks the Host that programs in a sandbox see, also after an update of the network.
func TestMaskHost(t *testing.T) {
	r := newRig(t)
	r.fake.dial = func() (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		go http.Serve(&oneConn{there}, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, q.Host) }))
		return here, nil
	}
	for mask, want := range map[string]string{"": "3000-%s.localhost", "a.test": "a.test", "a.test:${PORT}": "a.test:3000"} {
		rec := r.make(`{"network":{"maskRequestHost":"` + mask + `"}}`)
		if strings.Contains(want, "%") {
			want = fmt.Sprintf(want, rec.ID)
		}
		for range 2 {
			if _, text := r.send("GET", "/", "", "Host: 3000-"+rec.ID+".localhost"); text != want {
				t.Errorf("mask %q: Host %q, want %q", mask, text, want)
			}
			if resp, text := r.control("PUT", "/sandboxes/"+rec.ID+"/network", "{}"); resp.StatusCode != http.StatusNoContent {
				t.Fatalf("update: %d %s", resp.StatusCode, text)
			}
		}
	}
	if resp, _ := r.control("POST", "/v2/sandboxes", `{"network":{"maskRequestHost":"a/b"}}`); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a mask that is not a host: %d", resp.StatusCode)
	}
}

// oneConn listens for one connection, which exists.
type oneConn struct{ c net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.c; c != nil {
		l.c = nil
		return c, nil
	}
	return nil, net.ErrClosed
}
func (*oneConn) Close() error   { return nil }
func (*oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestVolumeForce checks that a write replaces a file only with force, and the permissions of new files and directories.
func TestVolumeForce(t *testing.T) {
	r := newRig(t)
	_, text := r.control("POST", "/volumes", `{"name":"v"}`)
	_, rest, _ := strings.Cut(text, `"volumeID":"`)
	id, _, _ := strings.Cut(rest, `"`)
	r.api.volumes.mu.Lock()
	token := r.api.volumes.all[id].Token
	r.api.volumes.mu.Unlock()
	for _, c := range []struct {
		method, what, query, body string
		want                      int
		has                       string
	}{
		{"PUT", "file", "path=/d/a&mode=384", "one", 201, `"mode":384`}, {"PUT", "file", "path=/d/a", "two", 409, ""}, {"PUT", "file", "path=/d/a&force=false", "two", 409, ""},
		{"GET", "file", "path=/d/a", "", 200, "one"}, {"PUT", "file", "path=/d/a&force=true", "two", 201, `"mode":384`}, {"GET", "file", "path=/d/a", "", 200, "two"},
		{"PUT", "file", "path=/d/b&mode=x", "", 400, ""}, {"PUT", "file", "path=/d&force=true", "", 400, ""},
		{"POST", "dir", "path=/e&mode=448", "", 201, `"mode":448`}, {"POST", "dir", "path=/e", "", 409, ""}, {"POST", "dir", "path=/e&force=true", "", 201, `"mode":448`},
		{"POST", "dir", "path=/d/a&force=true", "", 409, ""},
	} {
		resp, text := r.send(c.method, "/volumecontent/"+id+"/"+c.what+"?"+c.query, c.body, "Authorization: Bearer "+token)
		if resp.StatusCode != c.want || !strings.Contains(text, c.has) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.what, c.query, resp.StatusCode, text, c.want, c.has)
		}
	}
	root, err := r.api.volumes.dir.OpenRoot(volumeData + "/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	one := &content{root, r.api.volumes.all[id].held, r.api.volumes.dir}
	before := r.stored()
	for name, force := range map[string]bool{"c": false, "n/c": true, "d/a": true} {
		if err := one.put(name, io.MultiReader(strings.NewReader("part"), failingReader{}), force, nil); err == nil {
			t.Error("a failed upload succeeded")
		}
	}
	for _, name := range []string{"c", "n"} {
		if _, err := root.Stat(name); err == nil {
			t.Errorf("a failed upload left %s, which the next one cannot replace", name)
		}
	}
	if text, err := root.ReadFile("d/a"); err != nil || string(text) != "two" {
		t.Errorf("a failed upload in the place of a file left %q, %v", text, err)
	}
	if left, err := fs.ReadDir(r.api.volumes.dir.FS(), volumeUploads); err != nil || len(left) > 0 || r.stored() != before {
		t.Errorf("failed uploads left %v, %v; counted %+v, before %+v", left, err, r.stored(), before)
	}
	if err := root.Symlink("d/a", "link"); err != nil {
		t.Fatal(err)
	}
	if err := one.put("link", strings.NewReader("three"), true, nil); err != nil {
		t.Error(err)
	}
	if text, err := root.ReadFile("d/a"); err != nil || string(text) != "three" {
		t.Errorf("a write to a link left %q, %v", text, err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the client disconnected") }

// TestTags checks which tags a template can have.
func TestTags(t *testing.T) {
	r := newRig(t)
	r.api.store.templates["i1"] = &template{ID: "i1", Name: "t"}
	r.api.store.templates["i1"].tag(templateTag{Build: "b"}, []string{"v1"})
	for tags, want := range map[string]int{`["latest","V2_a.b-c"]`: 201, `[":x"]`: 400, `["t:"]`: 400, `[""]`: 400, `["a/b"]`: 400} {
		if resp, text := r.control("POST", "/templates/tags", `{"target":"t:v1","tags":`+tags+`}`); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", tags, resp.StatusCode, text, want)
		}
	}
	for name, want := range map[string]int{"t:v2": 202, "t": 202, "t:": 400, "t:a:b": 400} {
		if resp, text := r.control("POST", "/v3/templates", `{"name":"`+name+`"}`); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", name, resp.StatusCode, text, want)
		}
	}
}

// TestSteps checks that the user of one RUN does not apply to the next, and which step a failed build names.
func TestSteps(t *testing.T) {
	r := newRig(t)
	q := recipe{FromImage: "debian", Steps: []step{
		{Type: "RUN", Args: []string{"a", "web"}}, {Type: "USER", Args: []string{"app"}}, {Type: "ENV", Args: []string{"A", "1", "B", "2"}}, {Type: "RUN", Args: []string{"b", "root"}},
		{Type: "RUN", Args: []string{"c", ""}},
	}}
	work := &workspace{dir: t.TempDir(), ledger: &r.api.store.ledger}
	text, lines, err := r.api.builds.containerfile(work, q.FromImage, q.Steps)
	want := `FROM debian
USER web
RUN ["/bin/sh","-c","a"]
USER ""
USER app
ENV A='1'
ENV B='2'
USER root
RUN ["/bin/sh","-c","b"]
USER app
RUN ["/bin/sh","-c","c"]
`
	if err != nil || text != want || strings.Join(lines, " ") != "base 1 1 1 2 3 3 4 4 4 5" {
		t.Fatalf("%v\n%s%q", err, text, lines)
	}
	for _, c := range []struct {
		err  error
		want buildReason
	}{
		{fmt.Errorf("build: %w", &builder.Failure{Text: ".Containerfile:9: RUN b: exit code 1", Line: 9, Reason: "RUN b: exit code 1"}), buildReason{"RUN b: exit code 1", "4"}},
		{&builder.Failure{Line: 1, Reason: "no such image"}, buildReason{"no such image", "base"}},
		{&builder.Failure{Text: "far", Line: 99, Reason: "x"}, buildReason{"far", ""}}, {&builder.Failure{Text: "whole"}, buildReason{"whole", ""}}, {errors.New("exit 1"), buildReason{"exit 1", ""}},
	} {
		if got := why(c.err, lines); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
	for _, c := range []struct {
		recipe
		want buildReason
	}{
		{recipe{FromImage: "debian", Steps: []step{{Type: "WORKDIR", Args: []string{"/"}}, {Type: "NONE"}}}, buildReason{"step 2: " + errStep.Error(), "2"}},
	} {
		_, _, err := r.api.builds.containerfile(work, c.FromImage, c.Steps)
		if got := why(err, nil); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	_, err = r.api.builds.image(t.Context(), &build{id: "b", template: &template{ID: "t"}}, recipe{FromTemplate: "none"}, nil)
	if got, want := why(err, nil), (buildReason{`invalid request: base "none": not an image`, "base"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestBeforePattern checks which directory of an upload a COPY with a pattern copies.
func TestBeforePattern(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "a/b.txt": "a/b.txt", "*.txt": "", "a/*": "a/", "a/b*/c": "a/", "a/b/**/c.{js,ts}": "a/b/", "a/{b,c}/d": "a/", "a?": "", "a/[bc]": "a/"} {
		if got := beforePattern(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestStartCmd checks that a build tries the start command, and fails if it does not start.
func TestStartCmd(t *testing.T) {
	r := newRig(t)
	r.fake.begin = func(ctx context.Context, c runner.Command) error {
		if c.Argv[3] == "fails" {
			return errExit
		}
		return nil
	}
	for q, want := range map[string]string{
		`{"fromImage":"debian"}`: `"status":"ready"`, `{"fromImage":"debian","startCmd":"a","readyCmd":"b"}`: `"status":"ready"`,
		`{"fromImage":"debian","startCmd":"fails","readyCmd":"fails"}`: `"step":"finalize"`,
	} {
		_, text := r.control("POST", "/v3/templates", `{"name":"t"}`)
		var made struct{ TemplateID, BuildID string }
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
		path := "/templates/" + made.TemplateID + "/builds/" + made.BuildID
		if resp, text := r.control("POST", "/v2"+path, q); resp.StatusCode != 202 {
			t.Errorf("%s: %d %s", q, resp.StatusCode, text)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			_, text := r.control("GET", path+"/status", "")
			if strings.Contains(text, want) {
				break
			} else if time.Now().After(end) || strings.Contains(text, `"status":"error"`) {
				t.Fatal(text)
			}
		}
	}
	if n := len(r.api.store.all()); n != 0 {
		t.Errorf("%d sandboxes of builds", n)
	}
}
