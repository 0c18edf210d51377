package executor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"golang.org/x/crypto/ssh/agent"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// SSHAgent is an agent for commands: the one at a socket of this machine, or one of demesne's own that has the keys of
// files.
type SSHAgent struct {
	socket string
	keys   agent.Agent // nil: see socket
}

// ParseAgents parses the words of --ssh: ID[=SOCKET] or ID=KEY[,KEY…].
func ParseAgents(words []string, getenv func(string) string) (map[string]SSHAgent, error) {
	all := map[string]SSHAgent{}
	for _, word := range words {
		id, places, given := strings.Cut(word, "=")
		if !given {
			places = getenv("SSH_AUTH_SOCK")
		}
		if places == "" {
			return nil, fmt.Errorf("ssh %q: no socket, and SSH_AUTH_SOCK is not set", id)
		}
		one, err := agentOf(strings.Split(places, ","))
		if err != nil {
			return nil, fmt.Errorf("ssh %q: %w", id, err)
		}
		all[id] = one
	}
	return all, nil
}

// agentOf returns the agent at a socket, or one that has the keys of files.
func agentOf(paths []string) (a SSHAgent, err error) {
	for _, path := range paths {
		st, err := os.Stat(path)
		switch {
		case err != nil:
			return a, fmt.Errorf("open %q: %w", path, fsutil.Reason(err))
		case st.Mode()&os.ModeSocket != 0 && len(paths) > 1:
			return a, fmt.Errorf("%q: one id has one socket: give this one another id", path)
		case st.Mode()&os.ModeSocket != 0:
			a.socket, err = filepath.Abs(path)
			return a, err
		case !st.Mode().IsRegular():
			return a, fmt.Errorf("%q: neither a socket nor a file with a key", path)
		}
	}
	a.keys, err = keysOf(paths)
	return a, err
}

// ssh lets the command talk to an agent of this machine.
func (m *mounts) ssh(one *instructions.Mount) error {
	id := one.CacheID
	if id == "" {
		id = "default"
	}
	agent, ok := m.Agents[id]
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
	stop, err := serveSocket(socket, agent.serve)
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

// serveSocket makes a socket, and serves its connections. An agent of this machine accepts connections of its own user only,
// and a command may have another id.
func serveSocket(socket string, serve func(net.Conn)) (stop func(), err error) {
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
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return func() { l.Close() }, nil
}

func (a SSHAgent) serve(c net.Conn) {
	if a.keys != nil {
		serveKeys(a.keys, c)
		return
	}
	relayConn(c, a.socket)
}

func relayConn(c net.Conn, to string) {
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
