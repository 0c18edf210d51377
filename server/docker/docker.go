// Package docker is the frontend docker of demesne-frontend: a Docker socket for the commands of one sandbox.
//
// The program that starts a sandbox with a Docker socket, the parent, starts it first: see runner/client/servers.go. It serves a part of
// Docker's Engine API on a unix socket, which the parent sees as /run/docker.sock. Each container is a sandbox beside the
// parent, with the parent's rules for the network, below its limits, and in its group, where the names of containers lead to
// them:
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
// Privileges are refused, never ignored. Containers end with this process, which ends with the parent's processes.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Main serves the socket that the argument names until its parent ends.
func Main() {
	procself.OwnHome()
	if err := serve(os.Args[1], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, text.SafeLine("docker: "+err.Error()))
		os.Exit(1)
	}
}

// serve waits for the end of in: the parent exists then. The caller listens on the socket, and has locked its directory until
// this process ends.
func serve(socket string, in io.Reader) error {
	s := &server{socket: socket, dir: filepath.Dir(socket), session: session.New(session.Options{}), networks: defaultNetworks(),
		execs: map[string]*execution{}, volumes: map[string]*volume{}, built: map[string]string{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	defer s.close()
	listener := os.NewFile(3, socket)
	unix.CloseOnExec(lockFD)
	l, err := net.FileListener(listener)
	listener.Close()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	s.session.Engine(context.Background()) // ahead of its use
	io.Copy(io.Discard, in)
	ended, err := s.adopt()
	if err != nil || ended == nil {
		return err
	}
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0)} // a client must not write to the caller's terminal
	go srv.Serve(netutil.LimitListener(l, connectionsMost))
	defer srv.Close()
	return ended()
}

// lockFD is the locked directory. No other process may keep the lock.
const lockFD = 4

// connectionsMost bounds the connections, so that the descriptors of this process suffice.
const connectionsMost = 256

// adopt finds the parent. ended waits for the end of its processes. It is nil if there is no parent.
func (s *server) adopt() (ended func() error, err error) {
	parent, err := s.findParent()
	if parent == nil {
		return nil, err
	}
	process, err := unix.PidfdOpen(parent.PID, 0)
	again, gone := s.findParent() // another process may have its number
	switch {
	case errors.Is(err, unix.ESRCH) || again == nil || again.PID != parent.PID:
		return nil, gone
	case err != nil:
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	s.parent = session.CreateOptions{Spec: parent.Spec, Egress: session.EgressOf(&parent.Spec)}
	s.sandbox = parent.ID
	names := s.parent.Egress.Aliases
	s.alias = names[len(names)-1]
	return func() error {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("poll", err)
			}
		}
	}, nil
}

// rules returns the present rules of the parent, with its data.
func (s *server) rules() (e session.Egress, err error) {
	info, err := s.session.Inspect(s.ctx, s.sandbox)
	if err == nil {
		e = session.EgressOf(&info.Spec)
		e.OpenWithInputs = true
	}
	return e, err
}

// findParent returns the live sandbox that has the socket, or nil.
func (s *server) findParent() (parent *runner.Info, err error) {
	err = s.session.With(context.Background(), func(e session.Engine) error {
		infos, err := e.List(context.Background())
		for _, i := range infos {
			if i.PID != 0 && slices.Contains(i.Spec.Served(), s.socket) && i.Spec.Egress != nil && len(i.Spec.Egress.Aliases) > 0 {
				parent = &i
			}
		}
		return err
	})
	return parent, err
}

// close removes all containers, volumes and built images.
func (s *server) close() {
	s.end()
	s.lending.Lock() // no request takes the spare or makes a container any more
	s.mu.Lock()
	all := slices.Clone(s.containers) // each removal changes it
	s.drop(s.spare.c)
	s.spare.c = nil
	s.mu.Unlock()
	s.lending.Unlock()
	for _, c := range all {
		s.ending.Go(func() { s.remove(c, true) })
	}
	s.ending.Wait()
	s.session.Close()
	s.dropBuilt()
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, text.SafeLine("docker: "+err.Error()))
	}
}
