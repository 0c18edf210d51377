package backend

import (
	"context"
	"time"
)

// Code keeps kernels in sandboxes, for the tool set "code". Its methods are safe for concurrent use and return when ctx
// ends. A session belongs to its owner: no other one finds it. The methods of [Backend] take the sandbox of a session too.
type Code interface {
	// StartSession makes a sandbox with a kernel. Both end with StopSession, or with this process.
	StartSession(ctx context.Context, r CodeRequest, w Callbacks) (*CodeSession, error)
	// Session returns a live session. The error says how an earlier one of that id ended.
	Session(owner, id string) (*CodeSession, error)
	// Sessions returns the live sessions, the oldest first.
	Sessions(owner string) []CodeSession
	// Execute executes r.Code in the session r.Session. Without one it makes a sandbox, executes the code and removes the
	// sandbox. An exception of the code is no error, and neither is the end of the kernel: see [CodeResult].
	Execute(ctx context.Context, r CodeRequest, w Callbacks) (*CodeResult, error)
	// Check parses r.Code in a sandbox of its own, and executes nothing of it: see [CodeResult].Problems. With r.Session the
	// sandbox has the image of that session.
	Check(ctx context.Context, r CodeRequest, w Callbacks) (*CodeResult, error)
	// Install installs r.Dependencies in the session r.Session.
	Install(ctx context.Context, r CodeRequest, w Callbacks) (*CodeResult, error)
	// Inspect describes a session, with the variables of its kernel and the processes of its sandbox.
	Inspect(ctx context.Context, owner, id string) (*CodeState, error)
	// Runtimes returns the languages that a sandbox on an image can execute.
	Runtimes(ctx context.Context, r CodeRequest, w Callbacks) ([]Runtime, error)
	StopSession(ctx context.Context, owner, id string) error
}

// CodeRequest is a checked request to make a session or to execute code. Request describes a new sandbox.
type CodeRequest struct {
	Request
	Owner, Session string
	Language       string   // name or alias of a language; empty: the session's
	Kernel         string   // name of a kernelspec; empty: the first one of the language, or demesne's own kernel
	Dependencies   []string // packages to install: NAME or NAME==VERSION
	Code           string
}

// CodeSession is a live session.
type CodeSession struct {
	ID, Sandbox      string
	Language, Kernel string
	Image, Egress    string
	OutputDir        string
	Created, Used    time.Time // Used is zero while it is busy
	InstallError     string    // why its dependencies are not all there; empty: they are
}

// CodeResult is the outcome of an execution. All of it comes from a sandbox and is untrusted.
type CodeResult struct {
	Stdout, Stderr Tail
	Value          map[string]string // of the last expression: its texts, by MIME type
	Outputs        []CodeOutput      // what the code showed, in order, and the media of the value
	Dropped        int               // outputs that were not kept
	Count          int               // of the execution in its session
	ExitCode       *int              // of a program that is no kernel
	OutputDir      string
	Denied         []string // connections that were refused, one line each

	Failed        bool // the fields below say why
	Type, Message string
	Traceback     []string
	TimedOut      bool   // the code was interrupted at its time limit
	Died          string // how the kernel ended, one line; empty: it lives
	Hint          string // what to do next; may be empty

	// Problems are errors of syntax. Lines and columns begin at 1; 0: not known.
	Problems []struct {
		Line, Column int
		Message      string
	}
}

// CodeOutput is one value that code showed, in the richest form that it has.
type CodeOutput struct {
	MIME string
	Text string // of a text type
	Data []byte // of a binary type
	File string // file of the host with all of it; empty: none
}

// CodeState describes a session and what its processes have in memory. The texts come from the sandbox and are untrusted.
type CodeState struct {
	CodeSession
	Variables []struct{ Name, Type, Value string }
	More      int               // variables that are left out
	Unread    string            // why there are no variables; empty: they were read
	Env       map[string]string // the kernel's, with secrets masked
	Processes []string          // command lines
	Memory    int64             // bytes that the processes use
}

// Runtime is a language that a sandbox can execute.
type Runtime struct {
	Language, Program, Version string
	Kernels                    []string // names of kernelspecs
	Session                    bool     // the language has a kernel there
}
