package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// bareRelay is a minimal proxy in Go, in a process of its own. It accepts any CONNECT, dials its
// fixed target, and copies. It checks no policy, keeps no log, and has neither a sandbox nor a veth
// pair in front of it. The cost of a tunnel through it is that of package net, the Go runtime and
// the kernel.
//
//	bench relay HOST:PORT TARGET
func bareRelay(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("relay is for bench itself")
	}
	l, err := net.Listen("tcp4", args[0])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	accept(l, func(c net.Conn) { relay(c.(*net.TCPConn), args[1]) })
	return nil
}

func relay(c *net.TCPConn, target string) {
	head := make([]byte, 1024)
	n, err := c.Read(head)
	if err != nil || !bytes.HasSuffix(head[:n], []byte("\r\n\r\n")) {
		return
	}
	up, err := net.Dial("tcp4", target)
	if err != nil {
		return
	}
	defer up.Close()
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	done := make(chan bool)
	go func() {
		io.Copy(up, c)
		up.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	io.Copy(c, up)
	c.CloseWrite()
	<-done
}

// startRelay starts a bareRelay to target, listening on relayServer.
func (m *machine) startRelay(target string) (stop func()) {
	cmd := m.command("bench", "relay", relayServer, target)
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	var err error
	m.elsewhere.Do(func() { err = cmd.Start() })
	check(err)
	stop = func() {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		stop()
		check(fmt.Errorf("start relay: %w", err))
	}
	return stop
}
