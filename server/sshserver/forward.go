package sshserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"demesne/internal/text"
)

// forward connects the client to a port of the sandbox (ssh -L, -D, -W). A process in the sandbox makes the connection, so
// "localhost" is the sandbox, and never the host. Another address would leave the sandbox past its policy.
func (c *connection) forward(ctx context.Context, n ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		From       string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(n.ExtraData(), &to); err != nil || to.Port == 0 || to.Port > 65535 {
		n.Reject(ssh.ConnectionFailed, "not an address")
		return
	}
	if !isLoopback(to.Host) {
		c.say(fmt.Sprintf("connection to %s refused: only ports of the sandbox itself, at localhost, can be forwarded", text.SafeLine(text.Shorten(to.Host, 80))))
		n.Reject(ssh.Prohibited, "only localhost of the sandbox")
		return
	}
	stream, err := c.box.Dial(ctx, uint16(to.Port))
	if err != nil {
		n.Reject(ssh.ConnectionFailed, text.SafeLine(err.Error()))
		return
	}
	defer stream.Close()
	channel, requests, err := n.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(channel, stream)
		channel.CloseWrite()
	}()
	go func() {
		if _, err := io.Copy(stream, channel); err != nil {
			stream.Close()
			return
		}
		stream.CloseWrite()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
