package sshserver

import (
	"context"
	"io"
	"os"
	"testing"

	"demesne/runner"
	"demesne/session"

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

// resized is a command that ends at once, and a channel without a client.
type resized struct {
	ssh.Channel
	session.Process
	terminal *os.File
	got      []runner.Winsize
}

func (r *resized) Read([]byte) (int, error)                     { return 0, io.ErrUnexpectedEOF }
func (r *resized) Terminal() *os.File                           { return r.terminal }
func (r *resized) Resize(w runner.Winsize) error                { r.got = append(r.got, w); return nil }
func (r *resized) Wait(context.Context) (*runner.Result, error) { return nil, nil }

// TestResizeEarly checks that a window which changes before the command has started is not forgotten.
func TestResizeEarly(t *testing.T) {
	terminal, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r := &resized{terminal: terminal}
	x := &command{channel: r}
	change := &ssh.Request{Type: "window-change", Payload: ssh.Marshal(struct{ Cols, Rows, WidthPx, HighPx uint32 }{100, 30, 0, 0})}
	if x.set(change) {
		t.Error("it has no terminal")
	}
	x.size = winsize(80, 24)
	if !x.set(change) {
		t.Error("it has not started")
	}
	if _, err := x.Carry(context.Background(), r, nil); err != nil || len(r.got) != 1 || r.got[0] != *winsize(100, 30) {
		t.Errorf("%v, %v", r.got, err)
	}
	if !x.set(change) || len(r.got) != 2 {
		t.Errorf("once it runs: %v", r.got)
	}
}
