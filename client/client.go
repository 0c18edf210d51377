package client

import (
	"io"
	"time"
)

// Client runs commands in sandboxes. [New] returns one. All methods, also of the types that it returns, may be called
// concurrently. sandbox is the id or the name of a persistent sandbox.
type Client struct{ *remote }

// Streams says where the output of a command goes while it runs. An error of a writer ends the command, and is the error
// of the call. The server ends a command whose output is not taken for 30 seconds.
type Streams struct {
	Stdout, Stderr io.Writer            // nil: discarded
	Started        func(sandbox string) // called with the id when the command has started; nil: not called
}

// TerminalOptions describes a terminal. The zero value is a login shell in the usual directory, of 24 rows and 80
// columns.
type TerminalOptions struct {
	Command    string // text for /bin/sh -c; empty: a login shell
	Dir        string // empty: /workspace, or the image's
	Term       string // empty: xterm-256color
	Rows, Cols uint16
}

// ReadMost is the size of the largest file that [Files.Read] returns, in bytes.
const ReadMost = 64 << 20

// Notice is a question that was asked, or one that waits no more. One field is set.
type Notice struct {
	Question *Question
	Answered *Answered
}

// EventFilter selects events. The zero value selects those that happen from now on.
type EventFilter struct {
	Type      string
	Sandbox   string    // id
	Namespace string    // for the operator, who sees all
	After     uint64    // begin after the event with this id; 0: only new events
	Last      int       // begin with so many events of the past, at most 200; see [Audit] for its lists
	Since     time.Time // ignore earlier ones
}
