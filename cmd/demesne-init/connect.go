package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// connect carries stdin and stdout to a port of this sandbox's loopback, as soon as something listens there, or with @PORT to
// a connection that [listen] took. It ends with the connection. Package net would add half a megabyte to every sandbox's PID 1.
func connect(port string) error {
	taken, isTaken := strings.CutPrefix(port, "@")
	n, err := strconv.ParseUint(taken, 10, 16)
	if err != nil {
		return fmt.Errorf("connect to port %q: not a port", port)
	}
	var fd int
	if isTaken {
		fd, err = take(taken)
	} else {
		fd, err = dial(int(n))
	}
	if err != nil {
		return fmt.Errorf("connect to port %d: %w", n, err)
	}
	c := os.NewFile(uintptr(fd), "connection")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(c, os.Stdin)
		unix.Shutdown(fd, unix.SHUT_WR)
	}()
	_, err = io.Copy(os.Stdout, c)
	if isTaken { // it may have sent all, and wait for the answer
		os.Stdout.Close()
		<-sent
	}
	return err
}

// dial waits until something listens on the port.
func dial(port int) (fd int, err error) {
	for {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return 0, err
		}
		if err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			return fd, nil
		}
		unix.Close(fd)
		if err != unix.ECONNREFUSED {
			return 0, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}
