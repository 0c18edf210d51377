package e2b

import (
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
