package sshserver

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"demesne/internal/text"
	"demesne/runner/client"
)

// address is where a forwarded connection leads, and where it is from.
type address struct {
	Host       string
	Port       uint32
	From       string
	OriginPort uint32
}

// forward connects the client to a port of the sandbox (ssh -L, -D, -W). A process in the sandbox makes the connection, so
// "localhost" is the sandbox, and never the host. Another address would leave the sandbox past its policy.
func (c *connection) forward(ctx context.Context, n ssh.NewChannel) {
	var to address
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
	go ssh.DiscardRequests(requests)
	received, _ := join(channel, stream)
	select {
	case <-received:
	case <-ctx.Done():
	}
	channel.Close()
}

// join copies between a channel and a port of the sandbox.
func join(channel ssh.Channel, stream *client.Stream) (received, sent chan struct{}) {
	received, sent = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(received)
		io.Copy(channel, stream)
		channel.CloseWrite()
	}()
	go func() {
		defer close(sent)
		if _, err := io.Copy(stream, channel); err != nil {
			stream.Close()
			return
		}
		stream.CloseWrite()
	}()
	return received, sent
}

// forwardedMost bounds the connections of one port that the sandbox opens to the client at once, and portsMost the ports.
const forwardedMost, portsMost = 16, 16

// listen listens on a port of the sandbox at the client's request (ssh -R). Each connection goes to the client, which knows where
// it leads: the sandbox chooses no address.
func (c *connection) listen(ctx context.Context, host string, port uint32) (*client.Stream, uint32, error) {
	if !isLoopback(host) || port > 65535 {
		return nil, 0, fmt.Errorf("-R refused: only localhost of the sandbox can listen, not %s", text.SafeLine(text.Shorten(cmp.Or(host, "*"), 80)))
	}
	stream, err := c.box.Listen(ctx, uint16(port))
	if err != nil {
		return nil, 0, err
	}
	lines := bufio.NewReaderSize(stream, 16)
	stop := context.AfterFunc(ctx, func() { stream.Close() }) // a sandbox that does not answer
	line, err := lines.ReadSlice('\n')
	stop()
	chosen, bad := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 16)
	if err != nil || bad != nil {
		stream.Close()
		return nil, 0, fmt.Errorf("-R: port %d of the sandbox cannot be used: is it taken?", port)
	}
	go func() {
		free := make(chan struct{}, forwardedMost)
		for {
			if _, err := lines.ReadByte(); err != nil {
				return
			}
			select {
			case free <- struct{}{}:
			default: // a program that opens more before it closes one would wait without a word
				c.say(fmt.Sprintf("-R: %d connections of port %d are open: more wait until one is closed", forwardedMost, chosen))
				free <- struct{}{}
			}
			go func() {
				if err := c.forwarded(ctx, host, uint32(chosen)); err != nil {
					c.say(fmt.Sprintf("-R: port %d ends: %v", chosen, err))
					stream.Close() // the connection would go to the next process
				}
				<-free
			}()
		}
	}()
	return stream, uint32(chosen), nil
}

// forwarded carries one connection to the client, until both ends have closed it.
func (c *connection) forwarded(ctx context.Context, host string, port uint32) error {
	stream, err := c.box.Take(ctx, uint16(port))
	if err != nil {
		return err
	}
	defer stream.Close()
	channel, requests, err := c.conn.OpenChannel("forwarded-tcpip", ssh.Marshal(address{host, port, "127.0.0.1", 0}))
	if err != nil {
		return nil // what the client connects to does not answer
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	received, sent := join(channel, stream)
	for _, end := range []chan struct{}{received, sent} {
		select {
		case <-end:
		case <-ctx.Done():
			return nil
		}
	}
	stream.Wait(ctx)
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
