package sshserver

import (
	"bufio"
	"context"
	"errors"
	"strings"

	"demesne/internal/sshagent"

	"golang.org/x/crypto/ssh"
)

// listenAgent forwards the client's ssh agent into the sandbox, and returns the variable that commands need. A process inside
// listens there, and sends one request at a time. Each goes to the client as one message, so the sandbox never holds a
// connection to the agent.
func (c *connection) listenAgent() (string, error) {
	stream, err := c.box.Agent(context.Background()) // until the connection ends, with this process
	if err != nil {
		return "", err
	}
	from := bufio.NewReaderSize(stream, 4096)
	path, err := from.ReadSlice('\n')
	if err != nil || len(path) > 256 {
		stream.Close()
		return "", errors.New("make socket in sandbox: no path")
	}
	go func() {
		defer stream.Close()
		for {
			request, err := sshagent.Read(from)
			if err != nil {
				return
			}
			answer, err := c.ask(request)
			if err != nil {
				answer = sshagent.Failure()
			}
			if _, err := stream.Write(answer); err != nil {
				return
			}
		}
	}()
	return "SSH_AUTH_SOCK=" + strings.TrimSuffix(string(path), "\n"), nil
}

// ask sends one request to the client's agent. It has a channel of its own: a client waits for the end of open channels.
// A key whose use is bound to a host's session is therefore refused by the agent.
func (c *connection) ask(request []byte) ([]byte, error) {
	to, requests, err := c.conn.OpenChannel("auth-agent@openssh.com", nil)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	go ssh.DiscardRequests(requests)
	if _, err := to.Write(request); err != nil {
		return nil, err
	}
	return sshagent.Read(to)
}
