package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// modern returns a request in protocol 2026-07-28, without a progress token.
func modern(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n", id, method, params)
}

var (
	listen = modern(`"listen"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true},`)
	script = modern(`"call"`, "tools/call", `"name":"sandbox_script","arguments":{"command":"x"},`)
)

// ended fails the test if serving does not end soon.
func ended(t *testing.T, served <-chan error) {
	t.Helper()
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Fatal("the server did not end")
	}
}

// TestListenEnds checks that a subscription of the client does not keep the server running: not at the end of the
// input, not after a stop, and not when no client is left. Calls in flight are still answered.
func TestListenEnds(t *testing.T) {
	for _, how := range []string{"end of input", "stop", "no client"} {
		d := &desk{}
		s, _ := serverFor(t, d)
		in, feed := io.Pipe()
		from, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		served := make(chan error, 1)
		go func() { served <- s.ServeStdio(ctx, in, out) }()
		io.WriteString(feed, listen+script)
		answers := bufio.NewScanner(from)
		for answered := false; !answered && answers.Scan(); {
			answered = strings.Contains(answers.Text(), `"id":"call"`)
		}
		switch how {
		case "end of input":
			feed.Close()
		case "stop":
			stop()
		case "no client":
			from.Close()
			feed.Close()
		}
		ended(t, served)
		from.Close()
	}
}

// TestListensStayOpen checks that open subscriptions of a session do not hold up its end, for a server whose lists could
// change.
func TestListensStayOpen(t *testing.T) {
	c := &drainingConn{Connection: newFrames(io.NopCloser(strings.NewReader(listen)), &writer{})}
	c.init()
	if m, err := c.Read(t.Context()); err != nil {
		t.Fatal(m, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(t.Context())
		read <- err
	}()
	ended(t, read)
}

// TestListsNeverChange checks that the server does not offer subscriptions to its lists, which never change. A
// client that subscribes anyway is answered at once, so that nothing stays open for it.
func TestListsNeverChange(t *testing.T) {
	s, _ := serverFor(t, &desk{}, func(o *Options) { o.Outputs = t.TempDir() })
	in, feed := io.Pipe()
	from, out := io.Pipe()
	go s.ServeStdio(t.Context(), in, out)
	go io.WriteString(feed, modern("1", "server/discover", "")+listen)
	defer feed.Close()
	time.AfterFunc(time.Minute, func() { out.CloseWithError(errors.New("not answered")) })
	lines := bufio.NewScanner(from)
	for lines.Scan() && !strings.Contains(lines.Text(), `"id":"listen","result"`) {
		if strings.Contains(lines.Text(), "listChanged") {
			t.Errorf("%s", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// TestClientGone checks that the calls of a disconnected client are cancelled, also if nothing is written to the
// client before the result.
func TestClientGone(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(script)), out) }()
	for len(d.seen()) == 0 {
		time.Sleep(time.Millisecond)
	}
	from.Close()
	ended(t, served)
}

// TestClientStays checks that a client that closed only its own end still gets its answer.
func TestClientStays(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*goneEvery, func() { close(d.hold) })
	go s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(script)), out)
	var m struct{ Result json.RawMessage }
	if err := json.NewDecoder(from).Decode(&m); err != nil || !strings.Contains(string(m.Result), "output_dir: /o/u-1") {
		t.Errorf("%s, %v", m.Result, err)
	}
}

// TestUnread checks that a client that reads no answers cannot make the server hold more than a bounded number of
// requests. Once it reads, all of them are answered.
func TestUnread(t *testing.T) {
	const pings = 3000
	for _, id := range []string{"%d", "7"} { // each with an id of its own, or all with the same
		s, _ := serverFor(t, &desk{})
		in, feed := io.Pipe()
		from, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.ServeStdio(t.Context(), in, out); out.Close() }()
		var sent atomic.Int64
		go func() {
			io.WriteString(feed, hello)
			for i := range pings {
				text := `{"jsonrpc":"2.0","id":` + strings.Replace(id, "%d", strconv.Itoa(i+10), 1) + `,"method":"ping"}` + "\n"
				io.WriteString(feed, text)
				sent.Add(1)
			}
			feed.Close()
		}()
		settled := int64(-1)
		for n := sent.Load(); n != settled; n = sent.Load() {
			settled = n
			time.Sleep(200 * time.Millisecond) // nothing says that the server has stopped reading
		}
		if settled > 3*maxUnread {
			t.Errorf("id %s: took %d requests of a client that reads nothing", id, settled)
		}
		answers := 0
		for lines := bufio.NewScanner(from); lines.Scan(); answers++ {
		}
		ended(t, served)
		if answers != pings+1 {
			t.Errorf("id %s: %d answers", id, answers)
		}
	}
}

// TestManyCalls checks that calls above a maximum are refused by their ids, and that the others still end.
func TestManyCalls(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d, func(o *Options) { o.Heartbeat = time.Hour })
	in, feed := io.Pipe()
	from, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(t.Context(), in, out); out.Close() }()
	go func() {
		for i := range maxCalls + 5 {
			io.WriteString(feed, strings.Replace(script, `"call"`, strconv.Itoa(i), 1))
		}
		feed.Close()
	}()
	var refused, done int
	for lines := bufio.NewScanner(from); lines.Scan(); {
		switch text := lines.Text(); {
		case strings.Contains(text, `"error":{"code":-32000,`) && strings.Contains(text, `"id":10`):
			if refused++; refused == 5 {
				close(d.hold)
			}
		case strings.Contains(text, `"result":`):
			done++
		}
	}
	ended(t, served)
	if refused != 5 || done != maxCalls {
		t.Errorf("%d refused, %d done", refused, done)
	}
}

// TestSameID checks that a call with the id of a call in progress is refused, and that the call in progress goes on.
func TestSameID(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	in, feed := io.Pipe()
	from, out := io.Pipe()
	go func() { s.ServeStdio(t.Context(), in, out); out.Close() }()
	go func() {
		io.WriteString(feed, hello+script+script+strings.Replace(script, "tools/call", "tools/list", 1))
		feed.Close()
	}()
	var refused, done int
	for lines := bufio.NewScanner(from); lines.Scan(); {
		switch text := lines.Text(); {
		case strings.Contains(text, `"message":"id call is the id of a call in progress"`) && !strings.Contains(text, `"id":`):
			if refused++; refused == 2 {
				close(d.hold)
			}
		case strings.Contains(text, `"id":"call","result"`):
			done++
		}
	}
	if refused != 2 || done != 1 || len(d.seen()) != 1 {
		t.Errorf("%d refused, %d done, %d started", refused, done, len(d.seen()))
	}
}
