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

	"demesne/cmd/internal/manifest"
	"demesne/cmd/internal/session"
	"demesne/cmd/internal/session/egress"
	"demesne/cmd/internal/session/quota"
	"demesne/mcp"
)

// retention is how long jobs that have ended are kept, and logs that nobody adds to.
const retention = 7 * 24 * time.Hour

// serve answers clients until ctx ends or the only one is gone.
func serve(ctx context.Context, o options, in io.ReadCloser, out io.WriteCloser) error {
	d, store, err := openDesk()
	if err != nil {
		return err
	}
	defer d.Close()
	opts, err := serverOptions(d, o.tools)
	if err != nil {
		return err
	}
	go func() { // what could not be removed can be the next time
		old := time.Now().Add(-retention)
		store.Prune(old)
		egress.PruneLogs(d.OutputRoot(), old)
		d.PruneMarks()
		manifest.Prune(d.OutputRoot(), old)
	}()
	most, err := quota.Outputs(os.Getenv)
	if err != nil {
		return err
	}
	go pruneOutputs(ctx, d, most)
	s := mcp.New(d, opts)
	if o.http == "" {
		return s.ServeStdio(ctx, in, out)
	}
	token, err := token(o.tokenFile)
	if err != nil {
		return err
	}
	l, err := listen(o.http, token != "")
	if err != nil {
		return err
	}
	return serveHTTP(ctx, s, l, mcp.HTTPOptions{Token: token, Hosts: o.hosts})
}

// pruneEvery is how often a server looks whether there are too many output directories.
const pruneEvery = 10 * time.Minute

// pruneOutputs removes output directories that are too many until ctx ends. What could not be removed can be the next time.
func pruneOutputs(ctx context.Context, d *session.Service, most int) {
	for {
		d.PruneOutputs(ctx, most)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pruneEvery):
		}
	}
}

// attend does one background job.
func attend(ctx context.Context, id string) error {
	d, _, err := openDesk()
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Attend(ctx, id)
}

// token is what HTTP clients have to send; empty: nothing.
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
		return "", fmt.Errorf("read token: %q has none in its first line", file)
	}
	return line, nil
}

var errToken = errors.New("others can reach this address: a bearer token is required (DEMESNE_MCP_TOKEN or --token-file)")

// listen opens host:port or unix:PATH. guarded says that clients have to have a token; without, only those of
// our own user are let in.
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

// listenUnix makes a socket that only its owner may connect to: one in a directory, for those that have no place
// there (an empty name, or one that begins with "@", unix(7)) are everybody's. One that a server left behind that was
// killed is taken away: nobody answers there.
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
		return nil, fmt.Errorf("listen on %q: another server answers there", path)
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

// flushTime is how long the last answers have to get through.
const flushTime = 2 * time.Second

// serveHTTP serves until ctx ends, and then answers what is under way. Streams that clients
// keep open for news are no calls, and are closed.
func serveHTTP(ctx context.Context, s *mcp.Server, l net.Listener, o mcp.HTTPOptions) error {
	handler := s.Handler(o)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil { // a connection that is open may ask for more
			http.Error(w, "this server is ending", http.StatusServiceUnavailable)
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
