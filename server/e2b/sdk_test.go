package e2b

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
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
		t.Errorf("a mask that is no host: %d", resp.StatusCode)
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

// TestVolumeForce checks that a write replaces a file with force alone, and the permissions of new files and directories.
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
	failing := io.MultiReader(strings.NewReader("part"), failingReader{})
	root, err := r.api.volumes.dir.OpenRoot(volumeData + "/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := (&content{root}).put("c", failing, false, nil); err == nil {
		t.Error("a failed upload succeeded")
	}
	if _, err := root.Stat("c"); err == nil {
		t.Error("a failed upload left a file, which the next one cannot replace")
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }
