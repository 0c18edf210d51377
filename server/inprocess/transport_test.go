package inprocess

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked sends a request to a handler in this process.
func asked(ctx context.Context, body io.Reader, h http.HandlerFunc) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://in-process/x", body)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: transport{h}}).Do(r)
}

func TestTransport(t *testing.T) {
	for _, row := range []struct {
		name, want, err string
		status          int
		h               http.HandlerFunc
	}{
		{"nothing", "", "", 200, func(http.ResponseWriter, *http.Request) {}},
		{"a body", "hi in", "", 201, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			w.WriteHeader(500) // too late
			io.WriteString(w, "hi ")
			io.Copy(w, r.Body)
		}},
		{"an early hint", "", "", 204, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) }},
		{"an abort", "part", "unexpected EOF", 200, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "part")
			panic(http.ErrAbortHandler)
		}},
		{"a panic", "", "the handler panicked: oh", 500, func(http.ResponseWriter, *http.Request) { panic("oh") }},
	} {
		resp, err := asked(t.Context(), strings.NewReader("in"), row.h)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		b, err := io.ReadAll(resp.Body)
		if string(b) != row.want || resp.StatusCode != row.status || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s: %d %q %v", row.name, resp.StatusCode, b, err)
		}
		resp.Body.Close()
	}
}

// TestTransportEnds checks that a handler learns that its client left, and that a client does not wait for a handler.
func TestTransportEnds(t *testing.T) {
	left := make(chan error, 1)
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, err := w.Write([]byte("x"))
		left <- err
	}
	resp, err := asked(t.Context(), nil, endless)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-left; err == nil {
		t.Error("a write after the client left succeeds")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if resp, err = asked(ctx, nil, endless); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-left
	deaf := make(chan struct{})
	defer close(deaf)
	silent, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := asked(silent, nil, func(http.ResponseWriter, *http.Request) { <-deaf }); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
