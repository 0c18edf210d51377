package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// served returns a client of a server with one handler.
func served(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL + "/below", Token: "secret", Namespace: "team"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRequest(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Demesne-Namespace") != "team" {
			t.Errorf("%v", r.Header)
		}
		fmt.Fprintf(w, `{"id":%q}`, r.Method+" "+r.URL.EscapedPath())
	})
	for name, want := range map[string]string{
		"web": "GET /below/v1/sandboxes/web", "a/b c?d": "GET /below/v1/sandboxes/a%2Fb%20c%3Fd", "..": "GET /below/v1/sandboxes/%00", "": "GET /below/v1/sandboxes/%00",
	} {
		if sb, err := c.Sandboxes().Get(t.Context(), name); err != nil || sb.ID != want {
			t.Errorf("%q: %+v %v", name, sb, err)
		}
	}
}

func TestErrors(t *testing.T) {
	status, body, header := 0, "", ""
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", header)
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	for _, row := range []struct {
		status     int
		body, text string
		is         []error
	}{
		{404, `{"code":404,"message":"no such sandbox","data":[]}`, "get sandbox: no such sandbox", []error{ErrNotFound, fs.ErrNotExist}},
		{404, `<html>`, "get sandbox: not found", []error{ErrNotFound}},
		{422, `{"code":1,"message":"validation failed","data":[{"location":"body.a","message":"b"}]}`, "get sandbox: validation failed: body.a: b", []error{ErrInvalid}},
		{401, `{"code":401,"message":"no valid token"}`, "get sandbox: no valid token", []error{ErrDenied}},
		{403, ``, "get sandbox: forbidden", []error{ErrDenied, fs.ErrPermission}},
		{409, ``, "get sandbox: conflict", []error{ErrConflict, fs.ErrExist}},
		{429, ``, "get sandbox: too many requests", []error{ErrBusy}},
		{503, ``, "get sandbox: service unavailable", []error{ErrBusy}},
		{413, strings.Repeat("x", 2<<20), "get sandbox: request entity too large", []error{ErrTooLarge}},
		{302, ``, "get sandbox: found", nil}, // no redirect is followed
		{200, `{"id":`, "get sandbox: decode answer: unexpected end of JSON input", nil},
	} {
		status, body, header = row.status, row.body, "7"
		_, err := c.Sandboxes().Get(t.Context(), "x")
		if err == nil || err.Error() != row.text {
			t.Errorf("%d: %v", row.status, err)
		}
		for _, want := range row.is {
			if !errors.Is(err, want) {
				t.Errorf("%d is not %v", row.status, want)
			}
		}
		var e *Error
		if errors.As(err, &e) && (e.Code != row.status || e.RetryAfter != 7*time.Second) {
			t.Errorf("%d: %+v", row.status, e)
		}
	}
}

func TestNew(t *testing.T) {
	t.Setenv("DEMESNE_STATE", t.TempDir())
	for _, bad := range []Options{{URL: "ftp://x"}, {URL: "127.0.0.1:7480"}, {URL: "unix:"}, {URL: "http://"}, {URL: "unix:/x", HTTP: &http.Client{Transport: http.DefaultTransport}}, {}} {
		if c, err := New(bad); err == nil {
			t.Errorf("%+v: %v", bad, c)
		}
	}
	os.Mkdir(os.Getenv("DEMESNE_STATE")+"/server", 0o700)
	os.WriteFile(os.Getenv("DEMESNE_STATE")+"/server/token", []byte("of-the-file\n"), 0o600)
	c, err := New(Options{})
	if err != nil || c.remote.token != "of-the-file" || c.remote.base.String() != DefaultURL {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := New(Options{URL: "http://other.test"}); err != nil || c.remote.token != "" {
		t.Errorf("the token of this machine's server goes elsewhere: %+v %v", c, err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"caller":%q}`, r.Host) }))
	t.Cleanup(func() { l.Close() })
	c, err = New(Options{URL: "unix:" + path})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Server(t.Context()); err != nil || s.Caller != "localhost" {
		t.Errorf("%+v %v", s, err)
	}
}

func TestStream(t *testing.T) {
	text := ""
	c := served(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text) })
	const start, chunk = "event: start\ndata: {\"sandbox\":\"x\"}\n\n", "event: chunk\ndata: {\"stream\":\"stdout\",\"text\":\"out\"}\n\n"
	for _, row := range []struct{ name, text, out, err string }{
		{"whole", ": ping\n\n" + start + "event: later\ndata: {}\n\n" + chunk + "id: 3\r\nevent:done\r\ndata:{\"exit_code\":3,\r\ndata:\"sandbox\":\"x\"}\r\n\r\n", "out", ""},
		{"cut", start + chunk, "out", "run: unexpected EOF"},
		{"cut in an event", start + "event: done\ndata: {}\n", "", "run: unexpected EOF"},
		{"nothing", "", "", "run: unexpected EOF"},
		{"an error", start + "event: error\ndata: {\"code\":400,\"message\":\"no\"}\n\n", "", "run: no"},
		{"not JSON", start + "event: chunk\ndata: x\n\n", "", `run: decode event "chunk": invalid character 'x' looking for beginning of value`},
		{"too long", "data: " + strings.Repeat("x", maxEvent) + "\n\n", "", "run: more bytes than the bound of it: 16777216 bytes in an event"},
		{"too many lines", "data: x\n" + strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 17), "", "run: more bytes than the bound of it: 16777216 bytes in an event"},
	} {
		text = row.text
		var out strings.Builder
		r, err := c.RunStream(t.Context(), RunRequest{}, Streams{Stdout: &out})
		if out.String() != row.out || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s: %q %v", row.name, &out, err)
		}
		if row.err == "" && (r == nil || r.ExitCode != 3 || r.Sandbox != "x") {
			t.Errorf("%s: %+v", row.name, r)
		}
	}
}

func TestEvents(t *testing.T) {
	left := make(chan bool, 1)
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.RawQuery; got != "after=7&last=2&sandbox=x&since=2026-01-02T03%3A04%3A05Z&type=a" {
			t.Error(got)
		}
		fmt.Fprint(w, ": connected\n\nid: 8\nevent: a\ndata: {\"id\":8}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		left <- true
	})
	f := EventFilter{Type: "a", Sandbox: "x", After: 7, Last: 2, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for e, err := range c.Events(t.Context(), f) {
		if err != nil || e.ID != 8 {
			t.Errorf("%+v %v", e, err)
		}
		break
	}
	<-left // the loop's end is the request's
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range c.Events(ctx, f) {
		if n++; n == 1 {
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Error(n)
	}
}

// reader makes a socket that reads text and writes to nowhere.
func reader(text string) *socket {
	return &socket{r: bufio.NewReader(strings.NewReader(text)), w: io.Discard}
}

func TestSocket(t *testing.T) {
	for _, row := range []struct{ name, sent, want, err string }{
		{"text", "\x81\x02hi", "1hi", ""},
		{"fragments around a ping", "\x02\x01a\x89\x01p\x00\x01b\x80\x01c", "2abc", ""},
		{"long", "\x82\x7e\x01\x00" + strings.Repeat("x", 256), "2" + strings.Repeat("x", 256), ""},
		{"close", "\x88\x02\x03\xe8", "", "EOF"},
		{"masked", "\x81\x82aaaahi", "", errFrame.Error()},
		{"an extension", "\xc1\x02hi", "", errFrame.Error()},
		{"a continuation of nothing", "\x80\x01a", "", errFrame.Error()},
		{"a message in a message", "\x01\x01a\x81\x01b", "", errFrame.Error()},
		{"an unknown kind", "\x83\x01a", "", errFrame.Error()},
		{"a long ping", "\x89\x7e\x01\x00", "", errFrame.Error()},
		{"a ping in parts", "\x09\x01a", "", errFrame.Error()},
		{"too long", "\x82\x7f\x00\x00\x00\x00\x01\x00\x00\x01", "", "more bytes than the bound of it: 16777216 bytes in a message"},
		{"a negative length", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "", "more bytes than the bound of it: 16777216 bytes in a message"},
		{"cut", "\x81\x05hi", "", "unexpected EOF"},
	} {
		kind, b, err := reader(row.sent).read()
		got := ""
		if err == nil {
			got = fmt.Sprintf("%d%s", kind, b)
		}
		if got != row.want || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s: %.20q %v", row.name, got, err)
		}
	}
}

func FuzzSocket(f *testing.F) {
	f.Add("\x02\x01a\x89\x01p\x00\x01b\x80\x01c")
	f.Fuzz(func(t *testing.T, text string) {
		s := reader(text)
		for {
			if _, b, err := s.read(); err != nil || len(b) > maxMessage {
				return
			}
		}
	})
}

// FuzzEvent checks that a server's stream ends with an error, or has events within their bound.
func FuzzEvent(f *testing.F) {
	f.Add("event: a\ndata: {}\ndata: x\n\n: ping\n\nid: 3\r\ndata\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := bufio.NewReaderSize(strings.NewReader(text), 16)
		for {
			e, err := readEvent(r)
			if err != nil {
				return
			}
			if e.data == nil || len(e.data) > len(text) {
				t.Fatalf("%q", e.data)
			}
		}
	})
}
