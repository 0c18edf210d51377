package e2b

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
)

// program lets f serve every port of the rig's sandboxes.
func (r *rig) program(f http.HandlerFunc) {
	r.fake.dial = func() (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		go http.Serve(&oneConn{there}, f)
		return here, nil
	}
}

// TestTarget checks that headers lead to no other sandbox or port than a Host that names one.
func TestTarget(t *testing.T) {
	o := &Options{Domain: "boxes.test:8443"}
	for _, c := range []struct {
		host, ids, ports string // values with a comma between them; "-": no header
		id               string
		port             uint16
		ok               bool
	}{
		{"3000-ix.boxes.test:8443", "-", "-", "ix", 3000, true}, {"3000-IX.boxes.test", "-", "-", "ix", 3000, true},
		{"3000-ix.boxes.test", "ix", "3000", "ix", 3000, true}, {"3000-ix.boxes.test", "ix", "-", "ix", 3000, true}, {"3000-ix.boxes.test", "-", "3000", "ix", 3000, true},
		{"3000-ix.boxes.test", "iy", "3000", "", 0, true}, {"3000-ix.boxes.test", "iy", "-", "", 0, true}, {"3000-ix.boxes.test", "", "-", "", 0, true},
		{"3000-ix.boxes.test", "ix", "49983", "", 0, true}, {"3000-ix.boxes.test", "-", "49983", "", 0, true}, {"3000-ix.boxes.test", "-", "", "", 0, true},
		{"3000-ix.boxes.test", "ix,iy", "3000", "", 0, true}, {"3000-ix.boxes.test", "ix", "3000,49983", "", 0, true},
		{"0-ix.boxes.test", "iy", "0", "", 0, true}, {"x-ix.boxes.test", "-", "-", "ix", 0, true}, {"x-ix.boxes.test", "iy", "0", "", 0, true}, {"3000.boxes.test", "-", "-", "", 3000, true}, {"3000.boxes.test", "iy", "3000", "", 0, true},
		{"localhost:1", "ix", "3000", "ix", 3000, true}, {"127.0.0.1", "ix", "99999", "ix", 0, true}, {"", "ix", "1", "ix", 1, true}, {"boxes.test", "ix", "-", "ix", 0, true},
		{"localhost", "ix,iy", "3000", "", 0, true}, {"localhost", "ix", "3000,1", "", 0, true}, {"localhost", "-", "-", "", 0, false}, {"localhost", "", "3000", "", 0, false},
		{"[3000-ix.boxes.test]:8443", "-", "-", "", 0, false}, {"a.3000-ix.boxes.test", "-", "-", "", 0, false}, {"boxes.test", "-", "-", "", 0, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		for key, all := range map[string]string{"E2b-Sandbox-Id": c.ids, "E2b-Sandbox-Port": c.ports} {
			for v := range strings.SplitSeq(all, ",") {
				if v != "-" {
					r.Header.Add(key, v)
				}
			}
		}
		id, port, ok := o.target(r)
		if id != c.id || ok != c.ok || id != "" && port != c.port {
			t.Errorf("%+v: %q %d %v", c, id, port, ok)
		}
	}
	r := newRig(t)
	r.program(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "reached") })
	rec, other := r.make(`{}`), r.make(`{}`)
	if resp, text := r.send("GET", "/", "", "Host: 3000-"+rec.ID+".localhost", "Origin: http://3000-"+rec.ID+".localhost", "E2b-Sandbox-Id: "+other.ID, "E2b-Sandbox-Port: 3000"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of one sandbox reaches another: %d %s", resp.StatusCode, text)
	}
	if _, text := r.send("GET", "/", "", "Host: 3000-"+rec.ID+".localhost", "E2b-Sandbox-Id: "+rec.ID, "E2b-Sandbox-Port: 3000"); text != "reached" {
		t.Errorf("its own: %s", text)
	}
}

// TestContained checks that [server.Access.Contain] holds for answers of programs, also for those before the last one.
func TestContained(t *testing.T) {
	r := newRig(t)
	r.program(func(w http.ResponseWriter, q *http.Request) {
		for _, status := range []int{http.StatusEarlyHints, http.StatusOK} {
			w.Header()["Set-Cookie"] = []string{"demesne_login_7480=x", "a=b; Domain=localhost", "theirs=1"}
			w.Header().Set("Clear-Site-Data", `"*"`)
			w.WriteHeader(status)
		}
	})
	c, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 3000-%s.localhost\r\nConnection: close\r\n\r\n", r.make(`{}`).ID)
	all, err := io.ReadAll(c)
	text := string(all)
	if err != nil || !strings.HasPrefix(text, "HTTP/1.1 103 ") || !strings.Contains(text, "HTTP/1.1 200 ") || strings.Count(text, "Set-Cookie: theirs=1\r\n") != 2 || strings.Count(text, "Set-Cookie") != 2 || strings.Contains(text, "Clear-Site-Data") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSwitch checks that a connection to a program switches to WebSocket, and to no other protocol.
func TestSwitch(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	for _, c := range []struct {
		wish   []string // headers of the client
		to     string   // what the program switches to; empty: it answers
		status int
		seen   string // what the program saw
	}{
		{[]string{"Connection: Upgrade", "Upgrade: websocket"}, "websocket", 101, "websocket"},
		{[]string{"Connection: Upgrade", "Upgrade: WebSocket"}, "WebSocket", 101, "WebSocket"},
		{[]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"}, "", 200, ""},
		{[]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"}, "h2c", 502, ""},
		{[]string{"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"}, "", 200, ""},
		{[]string{"Connection: Upgrade", "Upgrade: websocket, h2c"}, "h2c", 502, ""},
		{[]string{"Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"}, "h2c", 502, "websocket"},
		{[]string{"Connection: Upgrade", "Upgrade: websocket"}, "h2c", 502, "websocket"},
		{[]string{"Connection: Upgrade", "Upgrade: tcp"}, "tcp", 502, ""},
		{nil, "websocket", 502, ""},
		{nil, "-", 502, ""},
	} {
		seen := ""
		r.fake.dial = func() (io.ReadWriteCloser, error) {
			here, there := net.Pipe()
			go answerRaw(there, &seen, c.to)
			return here, nil
		}
		rec = r.make(`{}`)
		conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 3000-%s.localhost\r\n%s\r\n", rec.ID, strings.Join(append(c.wish, ""), "\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != c.status || seen != c.seen {
			t.Errorf("%q to %q: %v %v, the program saw %q", c.wish, c.to, resp, err, seen)
		}
		conn.Close()
	}
}

// answerRaw reads a request, and switches to a protocol, or answers. "-": it switches without saying to what.
func answerRaw(c net.Conn, seen *string, to string) {
	defer c.Close()
	from := textproto.NewReader(bufio.NewReader(c))
	from.ReadLine()
	h, _ := from.ReadMIMEHeader()
	if *seen = h.Get("Upgrade"); h.Get("HTTP2-Settings") != "" {
		*seen += " with settings"
	}
	switch to {
	case "":
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	case "-":
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	default:
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", to)
	}
}

// TestGuesses checks that every token of this API can be guessed as rarely as a caller's, and that right ones beside a
// guess buy no more guesses.
func TestGuesses(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{"network":{"allowPublicTraffic":false}}`)
	public := r.make(`{}`)
	_, text := r.control("POST", "/volumes", `{"name":"v"}`)
	_, volume, _ := strings.Cut(text, `"volumeID":"`)
	volume, _, _ = strings.Cut(volume, `"`)
	ask := func(from, method, path string, headers ...string) int {
		q := httptest.NewRequest(method, "http://localhost"+path, nil)
		q.RemoteAddr = from + ":1000"
		for _, h := range headers {
			k, v, _ := strings.Cut(h, ": ")
			q.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, q)
		return w.Code
	}
	port := func(rec record, port, header string) []string {
		return []string{"E2b-Sandbox-Id: " + rec.ID, "E2b-Sandbox-Port: " + port, header}
	}
	for i, c := range []struct {
		what   string
		guess  func(from, guess string) int
		before func(from, guess string) // what the attacker does with each guess first
	}{
		{"volume", func(from, g string) int {
			return ask(from, "GET", "/volumecontent/"+volume+"/dir?path=/", "Authorization: Bearer "+g)
		}, nil},
		{"no volume", func(from, g string) int {
			return ask(from, "GET", "/volumecontent/none/dir?path=/", "Authorization: Bearer "+g)
		}, nil},
		{"signed", func(from, g string) int { return ask(from, "GET", "/files?path=/a&signature=v1_"+g) }, nil},
		{"signed for a sandbox", func(from, g string) int {
			return ask(from, "GET", "/files?path=/a&signature=v1_"+g, port(rec, "49983", "X: y")...)
		}, nil},
		{"access", func(from, g string) int {
			return ask(from, "GET", "/envs", port(rec, "49983", "X-Access-Token: "+g)...)
		},
			func(from, g string) { ask(from, "GET", "/", port(public, "3000", "X-Access-Token: "+g)...) }},
		{"access beside a right signature", func(from, g string) int {
			return ask(from, "GET", "/files?path=/a&signature="+signature(rec.Token, "/a", "read", "", ""), port(rec, "49983", "X-Access-Token: "+g)...)
		}, nil},
		{"traffic", func(from, g string) int {
			return ask(from, "GET", "/", port(rec, "3000", "E2b-Traffic-Access-Token: "+g)...)
		},
			func(from, g string) { ask(from, "GET", "/", port(public, "3000", "E2b-Traffic-Access-Token: "+g)...) }},
		{"traffic by the access token", func(from, g string) int { return ask(from, "GET", "/", port(rec, "3000", "X-Access-Token: "+g)...) }, nil},
		{"execute", func(from, g string) int {
			return ask(from, "POST", "/execute", port(public, "49999", "X-Access-Token: "+g)...)
		}, nil},
		{"upload", func(from, g string) int { return ask(from, "PUT", "/templatefiles/"+g+"/x/"+strings.Repeat("a", 64)) }, nil},
	} {
		from, refused := fmt.Sprintf("203.0.113.%d", i+1), 0
		for n := range 40 {
			guess := fmt.Sprint("guess", n)
			if c.before != nil {
				c.before(from, guess)
			}
			if c.guess(from, guess) == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < 15 {
			t.Errorf("%s: %d of 40 guesses were refused unread", c.what, refused)
		}
	}
	for range 40 { // an address that is over is not a guess
		if got := ask("203.0.113.99", "GET", "/files?path=/a&signature_expiration=1&signature=v1_"+newToken()); got != http.StatusUnauthorized {
			t.Fatalf("an expired address: %d", got)
		}
	}
}
