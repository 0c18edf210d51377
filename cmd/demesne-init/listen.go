package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// listen takes connections to a port of this sandbox's loopback. Its first line is the port. Each further line is a connection,
// which the next process of connect gets whose argument is @PORT. Its reader bounds how many wait.
func listen(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("listen on port %q: not a port", port)
	}
	fd, at, err := listener(unix.AF_INET, &unix.SockaddrInet4{Port: int(n), Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", n, err)
	}
	chosen := at.(*unix.SockaddrInet4).Port
	takers, _, err := listener(unix.AF_UNIX, taker(strconv.Itoa(chosen)))
	if err == nil {
		_, err = fmt.Println(chosen)
	}
	for err == nil {
		err = give(fd, takers)
	}
	return err
}

// give waits for a connection, tells the reader, and passes it to the next process that asks.
func give(fd, takers int) error {
	c, err := accept(fd)
	if err != nil {
		return err
	}
	defer unix.Close(c)
	if _, err := os.Stdout.WriteString("\n"); err != nil {
		return err
	}
	to, err := accept(takers)
	if err == nil {
		unix.Sendmsg(to, []byte{0}, unix.UnixRights(c), nil, 0) // a process that has ended loses this connection only
		unix.Close(to)
	}
	return err
}

// take returns the connection that [give] passes for a port.
func take(port string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, taker(port))
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	b, space := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, b, space, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("no connection: %v", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("no connection: %v", err)
	}
	return fds[0], nil
}

// taker is the address at which processes of connect wait for a port's connections. Only this sandbox's network has it.
func taker(port string) *unix.SockaddrUnix { return &unix.SockaddrUnix{Name: "@demesne-port-" + port} }

func listener(family int, at unix.Sockaddr) (fd int, bound unix.Sockaddr, err error) {
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		err = unix.Bind(fd, at)
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	return fd, bound, err
}

// accept accepts a connection.
func accept(fd int) (int, error) {
	for {
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != unix.EINTR && err != unix.ECONNABORTED {
			return c, err
		}
	}
}
