package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/agents"
	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/mcpinstall"
	"demesne/mcp"
)

// serve answers clients until ctx ends, or the stdio client closes its end.
func serve(ctx context.Context, o *mcpinstall.ServerOptions, in io.ReadCloser, out io.WriteCloser) error {
	f, err := openFace()
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := f.OutputRoot()
	if err != nil {
		return err
	}
	opts, err := serverOptions(f.Service, root, o.Tools)
	if err != nil {
		return err
	}
	if f.agents, err = agents.Open(agents.Options{}); err != nil {
		return err
	}
	opts.Models = f.agents.Models()
	opts.Model = func(name, tool, image string) error {
		_, err := f.agents.In(image).Choose(tool, name)
		if errors.Is(err, agents.ErrNoProgram) {
			err = cli.Hinted(err, "install it so that PATH has it, or name an image that has it in the argument image")
		}
		return err
	}
	go f.Tidy() // ignore failures: the next start tries again
	go pruneOutputs(ctx, f)
	s := mcp.New(f, opts)
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

// pruneEvery is the interval between checks for too many output directories.
const pruneEvery = 10 * time.Minute

// pruneOutputs removes surplus output directories until ctx ends. It ignores failures, because the next round
// tries again.
func pruneOutputs(ctx context.Context, f *face) {
	for {
		f.PruneMost(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pruneEvery):
		}
	}
}

// attend does one background job.
func attend(ctx context.Context, id string) error {
	f, err := openFace()
	if err != nil {
		return err
	}
	defer f.Close()
	return f.doJob(ctx, id)
}

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
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
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

// listenUnix creates a socket that only its owner may connect to. The path is always made absolute: abstract
// sockets (an empty name, or one that begins with "@", unix(7)) are open to every user. A stale socket of a
// killed server is removed if it refuses connections.
func listenUnix(given string) (net.Listener, error) {
	if given == "" {
		return nil, errors.New("listen: no path after unix:")
	}
	path, err := filepath.Abs(given)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", given, err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %q: another server uses it", path)
	} else if st, gone := os.Lstat(path); gone == nil && st.Mode()&os.ModeSocket != 0 && errors.Is(err, unix.ECONNREFUSED) {
		os.Remove(path)
	}
	mask := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
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
