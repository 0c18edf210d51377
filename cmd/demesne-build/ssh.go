package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"demesne/cmd/internal/cli"
	"demesne/runner"
)

// agentsOf parses the words of --ssh: ID[=SOCKET].
func agentsOf(words []string, getenv func(string) string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range words {
		id, socket, given := strings.Cut(word, "=")
		if !given {
			socket = getenv("SSH_AUTH_SOCK")
		}
		if socket == "" {
			return nil, fmt.Errorf("ssh %q: no socket, and SSH_AUTH_SOCK is not set", id)
		}
		abs, err := filepath.Abs(socket)
		if err != nil {
			return nil, err
		}
		if st, err := os.Stat(abs); err != nil || st.Mode()&os.ModeSocket == 0 {
			return nil, cli.Hinted(fmt.Errorf("ssh %q: %q is not a socket", id, socket), "for a key in a file: ssh-agent sh -c 'ssh-add KEY && demesne build --ssh default …'")
		}
		all[id] = abs
	}
	return all, nil
}

// ssh lets the command talk to an agent of this machine.
func (m *mounts) ssh(one *instructions.Mount) error {
	id := one.CacheID
	if id == "" {
		id = "default"
	}
	agent, ok := m.agents[id]
	switch {
	case one.Target != "":
		return fmt.Errorf("target: %w: SSH_AUTH_SOCK names the socket", errors.ErrUnsupported)
	case !ok && one.Required:
		return fmt.Errorf("no agent %q was given: --ssh %s", id, id)
	case !ok:
		return nil
	}
	dir, err := m.temporary()
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "agent")
	stop, err := relaySocket(socket, agent)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, stop)
	if number(one.UID) != 0 || one.Mode != nil && *one.Mode&0o006 != 0 {
		if err := os.Chmod(socket, 0o666); err != nil { // dir is closed to others
			return err
		}
	}
	name := "ssh-" + id
	m.inputs = append(m.inputs, runner.Input{Path: socket, Name: name, Socket: true})
	m.env = append(m.env, "SSH_AUTH_SOCK="+runner.AsideDir+"/in/"+name)
	return nil
}

// maxAgentConns bounds the connections that a command holds to an agent at once.
const maxAgentConns = 64

// relaySocket makes a socket that leads to another one. An agent accepts connections of its own user only, and a command
// may have another id.
func relaySocket(socket, to string) (stop func(), err error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("make socket for an agent: %w", err)
	}
	slots := make(chan struct{}, maxAgentConns)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				relayConn(c, to)
			}()
		}
	}()
	return func() { l.Close() }, nil
}

func relayConn(c net.Conn, to string) {
	defer c.Close()
	agent, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer agent.Close()
	go func() {
		io.Copy(agent, c)
		agent.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(c, agent)
}
