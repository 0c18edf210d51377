package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"demesne/mcp"
	"demesne/mcp/install"
	"demesne/mcp/toolbackend"
	"demesne/server"
)

// serve answers clients until ctx ends, or the stdio client closes its end.
func serve(ctx context.Context, o *install.ServerOptions, in io.ReadCloser, out io.WriteCloser) error {
	f, err := toolbackend.Open(toolbackend.Options{})
	if err != nil {
		return err
	}
	defer f.Close()
	s, done, err := f.Server(ctx, o.Tools, os.Stderr, "demesne-mcp: ")
	if err != nil {
		return err
	}
	defer done()
	if o.HTTP == "" {
		return s.ServeStdio(ctx, in, out)
	}
	token, err := token(o.TokenFile)
	if err != nil {
		return err
	}
	l, err := listen(o.HTTP, token != "")
	if err != nil {
		return err
	}
	return serveHTTP(ctx, s, l, mcp.HTTPOptions{Token: token, Hosts: o.Hosts})
}

// varToken is the bearer token of HTTP clients.
const varToken = "DEMESNE_MCP_TOKEN"

// token returns the bearer token that HTTP clients must send; empty: no token.
func token(file string) (string, error) {
	if file == "" {
		return os.Getenv(varToken), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("read token: the first line of %q is empty", file)
	}
	return line, nil
}

var errToken = errors.New("other users can reach this address: a bearer token is required (DEMESNE_MCP_TOKEN or --token-file)")

// listen opens host:port or unix:PATH. guarded means that clients must send a token. Without a token only
// connections of this user and of root are accepted.
func listen(addr string, guarded bool) (net.Listener, error) {
	if strings.HasPrefix(addr, "unix:") {
		l, err := server.Listen(addr, false)
		if err != nil || guarded {
			return l, err
		}
		return ownUser{l}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if !guarded && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("listen on %q: %w", addr, errToken)
	}
	if !guarded {
		return ownUser{l}, nil
	}
	return l, nil
}

// flushTime bounds how long the last answers may take to reach clients.
const flushTime = 2 * time.Second

// serveHTTP serves until ctx ends, and then finishes the calls in flight. It closes the event streams that
// clients keep open.
func serveHTTP(ctx context.Context, s *mcp.Server, l net.Listener, o mcp.HTTPOptions) error {
	handler := s.Handler(o)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil { // an open connection may still send requests
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	})}
	fmt.Fprintf(os.Stderr, "demesne-mcp: listening on %s\n", l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	l.Close()
	s.Drain()
	flush, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	srv.Shutdown(flush)
	srv.Close()
	return nil
}
