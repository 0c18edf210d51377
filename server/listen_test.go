package server

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestListenUnix checks that a socket with a live server is not taken over, and that a stale one is.
func TestListenUnix(t *testing.T) {
	path := t.TempDir() + "/s"
	first, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := listenUnix(path); err == nil {
		t.Error("taken over")
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

// TestListenUnixElsewhere checks that abstract sockets are never used, because every user could connect to
// them. It also checks that a file that is not a socket is not removed.
func TestListenUnixElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	if l, err := listenUnix(""); err == nil {
		t.Errorf("listens on %v", l.Addr())
	}
	l, err := listenUnix("@name")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Lstat("@name"); err != nil || st.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v %v", st, err)
	}
	if err := os.WriteFile("notes", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = listenUnix("notes")
	if b, _ := os.ReadFile("notes"); err == nil || string(b) != "mine" {
		t.Errorf("%v; the file has %q", err, b)
	}
}

// TestServeEnds checks that a server that is to end answers a request in progress, and takes no other one.
func TestServeEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			end()
			for refused := error(nil); refused == nil; {
				_, refused = net.Dial("tcp", l.Addr().String())
			}
			io.WriteString(w, "answered")
		}), nil, log.Default())
	}()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "answered" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestServeEndsInTime checks that a request which does not end delays the end of the server by 5 seconds, and no more.
func TestServeEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes, 1)
		client, at := net.Pipe()
		l <- at
		ctx, end := context.WithCancel(t.Context())
		h := func(_ http.ResponseWriter, r *http.Request) { end(); <-r.Context().Done() }
		go io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		began := time.Now()
		if err := Serve(ctx, l, http.HandlerFunc(h), nil, log.Default()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != endTime {
			t.Errorf("the server ended after %v", took)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection: %v", err)
		}
	})
}
