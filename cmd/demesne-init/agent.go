package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// agentMost bounds a message of the ssh agent's protocol, as OpenSSH does.
const agentMost = 256 << 10

// agent makes a socket on which programs of this sandbox find an ssh agent, and writes its path as the first line. It
// carries each request to stdout and the answer from stdin, one after the other. It ends with stdin.
func agent() error {
	dir, err := os.MkdirTemp("", "ssh-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := dir + "/agent"
	fd, _, err := listener(unix.AF_UNIX, &unix.SockaddrUnix{Name: path})
	if err != nil {
		return fmt.Errorf("make socket of agent: %w", err)
	}
	if _, err := os.Stdout.WriteString(path + "\n"); err != nil {
		return err
	}
	var turn sync.Mutex
	over := make(chan error)
	go func() {
		for {
			c, err := accept(fd)
			if err != nil {
				over <- err
				return
			}
			go func() {
				f := os.NewFile(uintptr(c), "connection")
				defer f.Close()
				for relay(f, &turn, over) == nil {
				}
			}()
		}
	}()
	return <-over
}

// relay carries one request and its answer. An error of stdin or stdout ends the agent, by over.
func relay(f *os.File, turn *sync.Mutex, over chan<- error) error {
	request, err := message(f)
	if err != nil {
		return err
	}
	turn.Lock()
	defer turn.Unlock()
	if _, err := os.Stdout.Write(request); err != nil {
		over <- err
	}
	answer, err := message(os.Stdin)
	if err != nil {
		over <- err
	}
	_, err = f.Write(answer)
	return err
}

// message reads one message with its length.
func message(r io.Reader) ([]byte, error) {
	b := make([]byte, 4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || n > agentMost {
		return nil, fmt.Errorf("message of %d bytes", n)
	}
	b = append(b, make([]byte, n)...)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}
