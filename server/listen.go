package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrExposed is the error of [Listen] for an address that other machines can reach.
var ErrExposed = errors.New("other machines can reach this address")

// Listen opens host:port, or unix:PATH, a socket that only its owner can reach. An address that other machines can reach
// must be wanted.
func Listen(addr string, anywhere bool) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !anywhere && (!ok || !at.IP.IsLoopback()) {
		l.Close()
		return nil, fmt.Errorf("listen on %q: %w", addr, ErrExposed)
	}
	return l, nil
}

// listenUnix creates a socket that only its owner may connect to. The path is always made absolute: abstract sockets (an
// empty name, or one that begins with "@", unix(7)) are open to every user. The socket of a killed server, which
// refuses connections, is removed. A file, which refuses them too, stays.
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

// endTime is how long requests in progress may take when the server ends.
const endTime = 5 * time.Second

// Serve serves h on l until ctx ends, over TLS if secure is not nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler, secure *tls.Config, errors *log.Logger) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		TLSConfig: secure, ErrorLog: errors, ConnContext: withPeer,
	}
	serve := s.Serve
	if secure != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	soon, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if s.Shutdown(soon) != nil {
		s.Close() // streams of commands that go on
	}
	return nil
}
