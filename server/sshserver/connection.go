package sshserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// connection is the connection of a client to a sandbox.
type connection struct {
	service *session.Service
	allow   Allowed
	conn    *ssh.ServerConn

	opened chan struct{} // closed when sandbox or err is set
	box    *session.Sandbox
	err    error

	agent  func() (variable string, err error) // listens in the sandbox, once
	refuse sync.Map                            // what was refused, which is said once
}

// open opens the sandbox, which may have to be started again. A name of the ssh configuration has a prefix.
func (c *connection) open(ctx context.Context, name string) {
	defer close(c.opened)
	c.box, c.err = c.service.Open(ctx, name, session.Callbacks{})
	var e *ipc.Error
	if errors.As(c.err, &e) && e.Code == ipc.CodeNoSuchSandbox {
		if short, cut := strings.CutPrefix(name, Prefix); cut && runner.IsTarget(short) {
			c.box, c.err = c.service.Open(ctx, short, session.Callbacks{})
		}
	}
	if errors.As(c.err, &e) && e.Code == ipc.CodeNoSuchSandbox {
		c.err = text.Hinted(c.err, "demesne ls lists sandboxes")
	}
}

// say prints one line for the user, on the terminal of the client, which started this process. It says the same only once.
func (c *connection) say(line string) {
	if _, again := c.refuse.LoadOrStore(line, true); !again {
		if _, err := unix.IoctlGetTermios(unix.Stderr, unix.TCGETS); err == nil {
			line += "\r" // the client may have made the terminal raw
		}
		fmt.Fprintln(os.Stderr, "demesne: ssh: "+line)
	}
}
