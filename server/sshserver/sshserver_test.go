package sshserver

import (
	"testing"

	"golang.org/x/crypto/ssh"
)

// opened is a channel that a client opens.
type opened struct {
	ssh.NewChannel
	reject func()
}

func (opened) ChannelType() string                        { return "other" }
func (o opened) Reject(ssh.RejectionReason, string) error { o.reject(); return nil }

// TestOrder checks that a request is answered before a channel that the client opened after it.
func TestOrder(t *testing.T) {
	for range 100 {
		requests, channels := make(chan *ssh.Request, 16), make(chan ssh.NewChannel, 1)
		for range 3 {
			requests <- &ssh.Request{Type: "cancel-tcpip-forward"}
		}
		channels <- opened{reject: func() {
			if n := len(requests); n > 0 {
				t.Fatalf("%d requests wait", n)
			}
			close(channels)
		}}
		(&connection{}).serve(t.Context(), channels, requests)
	}
}
