// Package docker is the frontend docker of demesne-frontend: a Docker socket for the commands of one sandbox.
//
// demesne run --docker starts it beside the sandbox, the parent. It serves a part of Docker's Engine API on a unix socket,
// which the parent sees as /run/docker.sock. Each container is a sandbox beside the parent, with the parent's rules for the
// network, below its limits, and in its group, where the names of containers lead to them:
//
//	docker.go, http.go        the process, its end; requests, answers and errors
//	system.go, events.go      version, info, events
//	container.go, lifecycle.go   containers from their creation to their removal
//	spare.go                  a sandbox that is made before a client asks for it
//	config.go, budget.go      the words of a creation: what they become, what is refused; limits, summed
//	process.go, journal.go    a command with its streams, and what it wrote
//	hijack.go, exec.go, health.go   attached connections; further commands; health checks
//	archive.go                docker cp
//	images.go, build.go       the caller's store; builds, whose images only this parent sees
//	volumes.go, networks.go   directories that end with the parent; networks, which are only names
//
// It only parses Docker's words into requests of package session. Requests come from the sandbox, and are hostile: each body
// is bounded, each path of the host is one that the parent has, and no word gives a container what the parent lacks.
// Privileges are refused, never ignored. Containers end with this process, which ends with its stdin.
package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/session"
)

// Socket is where the parent sees the socket.
const Socket = "/run/docker.sock"

// Request is what demesne sends to this program: the parent, as its caller asked for it, in a group. Its last alias is its own.
type Request struct {
	Parent session.CreateOptions
}

// Answer is what this program prints when it listens.
type Answer struct {
	Socket string
}

// Main serves one parent until stdin ends.
func Main() {
	procself.OwnHome()
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, text.SafeLine(err.Error()))
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	var q Request
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	s, err := newServer(q)
	if err != nil {
		return err
	}
	defer s.close()
	socket := filepath.Join(s.sockets, "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	// Only the parent and its containers see the file: its directory is the caller's own. They may have other user ids.
	if err := os.Chmod(socket, 0o666); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0)} // a client must not write to the caller's terminal
	go srv.Serve(netutil.LimitListener(l, connectionsMost))
	defer srv.Close()
	if err := json.NewEncoder(out).Encode(Answer{socket}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return err
}

// connectionsMost bounds the connections, so that the descriptors of this process suffice.
const connectionsMost = 256

func newServer(q Request) (_ *server, err error) {
	s := &server{
		session: session.New(session.Options{}), parent: q.Parent,
		execs: map[string]*execution{}, volumes: map[string]*volume{}, built: map[string]string{},
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.networks = defaultNetworks()
	names := q.Parent.Egress.Aliases
	if q.Parent.Egress.Group == "" || len(names) == 0 {
		return nil, errors.New("read request: no group")
	}
	s.alias = names[len(names)-1]
	root, err := s.session.OutputRoot()
	if err != nil {
		return nil, err
	}
	s.dir = filepath.Join(root, session.OutputName())
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	if s.sockets, err = os.MkdirTemp("", "demesne-docker-"); err != nil {
		os.Remove(s.dir)
	}
	return s, err
}

// close removes all containers, volumes and built images.
func (s *server) close() {
	s.end()
	s.mu.Lock()
	all, sp := s.containers, s.spare.c
	s.mu.Unlock()
	var ending sync.WaitGroup
	if sp != nil {
		ending.Go(func() { s.endSandbox(sp) })
	}
	for _, c := range all {
		ending.Go(func() { s.remove(c, true) })
	}
	ending.Wait()
	s.session.Close()
	s.dropBuilt()
	if err := errors.Join(os.RemoveAll(s.dir), os.RemoveAll(s.sockets)); err != nil {
		fmt.Fprintln(os.Stderr, text.SafeLine("docker: "+err.Error()))
	}
}
