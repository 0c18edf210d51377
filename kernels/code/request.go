package code

import (
	"encoding/json"
	"time"

	"demesne/kernels/languages"
	"demesne/session"
)

// Request is a checked request to make a session or to execute code. Its Request describes a new sandbox.
type Request struct {
	session.Request
	Owner, Session string
	Language       string   // name or alias of a language; empty: the session's
	Kernel         string   // name of a kernelspec; empty: the first one of the language, or demesne's own kernel
	Dependencies   []string // packages to install: NAME or NAME==VERSION
	Code           string
	FixImports     bool // for a check: complete missing imports
	Patterns       bool // for a check: report patterns that deserve a look
}

// Bridge is a checked request to set a variable of a session to a value, which is Data or a variable of another session.
type Bridge struct {
	Owner, Session, Name string
	From, FromName       string // another session of the owner, and a variable of it; empty: Data
	Data                 json.RawMessage
}

// SessionInfo is a live session.
type SessionInfo struct {
	ID, Sandbox      string
	Language, Kernel string
	Image, Egress    string
	OutputDir        string
	Created, Used    time.Time // Used is zero while it is busy
	InstallError     string    // why its dependencies are not all there; empty: they are
}

// Result is the outcome of an execution. All of it comes from a sandbox and is untrusted.
type Result struct {
	Stdout, Stderr session.Tail
	Value          map[string]string // of the last expression: its texts, by MIME type
	Outputs        []Output          // what the code showed, in order, and the media of the value
	Dropped        int               // outputs that were not kept
	Count          int               // the number of the execution in its session
	ExitCode       *int              // set for a program that is not a kernel
	OutputDir      string
	Denied         []string // connections that were refused, one line each

	Failed        bool // the fields below say why
	Type, Message string
	Traceback     []string
	TimedOut      bool   // the code was interrupted at its time limit
	Died          string // how the kernel ended, one line; empty: it lives
	Hint          string // what to do next; may be empty

	Problems []Problem // errors of syntax
	Patterns []Problem // what deserves a look
	Fixed    string    // the code with further imports; empty: none are missing
	Imports  []string  // the imports that Fixed adds
}

// Problem is an error of syntax, or a line that deserves a look.
type Problem = languages.Problem

// Output is one value that code showed, in the richest form that it has.
type Output struct {
	MIME string
	Text string // of a text type
	Data []byte // of a binary type
	File string // file of the host with all of it; empty: none
}

// SessionState describes a session and what its processes have in memory. The texts come from the sandbox and are untrusted.
type SessionState struct {
	SessionInfo
	State
}

// Options describes a session.
type Options struct {
	Sandbox      *session.Sandbox // an existing one, which outlives the session; nil: Create says which
	Create       session.CreateOptions
	Language     languages.Language
	PreferOwn    bool                   // the driver precedes a kernelspec whose kernel prints values; see [languages.Language.Prints]
	Kernel       string                 // name of a kernelspec of the root, or Driver; empty: the language's kernelspec, else the driver
	Dir          string                 // the kernel's working directory; empty: the sandbox's
	Env          []string               // K=V, for the kernel
	Dependencies []languages.Dependency // installed before the first execution; see Session.Installed
}
