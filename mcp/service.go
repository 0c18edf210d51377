package mcp

import (
	"context"
	"time"

	"demesne/agents"
	"demesne/kernels/code"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/session"
)

// Service runs the operations of the tools. A request does not identify its caller: the caller must already have checked
// what it may ask for. Its methods are safe for concurrent use and return when ctx ends. By then everything
// that was started for the call has ended.
type Service interface {
	// Script makes a sandbox, runs one command in it and removes it. If r.Create.Spec has a key, Script uses the persistent
	// sandbox of that key and keeps it.
	Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error)
	// Start runs Script as a job. It returns as soon as the job is stored on disk.
	Start(ctx context.Context, r session.Request) (*session.Job, error)
	// Create makes a persistent sandbox. It exists until it is destroyed or expires.
	Create(ctx context.Context, r session.Request, w session.Callbacks) (*session.Created, error)
	// Exec runs a command in a persistent sandbox and renews its expiry.
	Exec(ctx context.Context, id string, r session.Request, w session.Callbacks) (*session.RunResult, error)
	// Upload copies src, a file or directory of the host, to dst in the sandbox.
	Upload(ctx context.Context, id, src, dst string, w session.Callbacks) (session.Copied, error)
	// Download copies src out of the sandbox.
	Download(ctx context.Context, id, src string, w session.Callbacks) (session.Copied, error)
	// Files performs one file operation inside a sandbox. The answer comes from the sandbox and is untrusted. It
	// contains text, and no path of the host.
	Files(ctx context.Context, id string, r files.Request) (*files.Answer, error)
	Destroy(ctx context.Context, id string) error
	// List returns the sandboxes and jobs of the caller's frontend.
	List(ctx context.Context) (*session.Listing, error)
	// Fork copies a persistent sandbox. An empty name means none.
	Fork(ctx context.Context, id, name string) (*session.Created, error)
	// ChangeLimits changes the limits of a live sandbox that are not zero in l.
	ChangeLimits(ctx context.Context, id string, l runner.Limits) error
	// CopyBetween copies src in one sandbox to dst in another.
	CopyBetween(ctx context.Context, id, src, toID, dst string, w session.Callbacks) (session.Copied, error)
	// Status, Wait and Cancel return ErrNoJob for an unknown id. Wait returns the job when it has ended or after
	// most, whichever is first. Cancel may be repeated.
	Status(ctx context.Context, id string) (*session.Job, error)
	Wait(ctx context.Context, id string, most time.Duration) (*session.Job, error)
	Cancel(ctx context.Context, id string) (*session.Job, error)
	// Agent runs a coding agent in a sandbox of its own until it ends. StartAgent does so as a job.
	Agent(ctx context.Context, r agents.Request, w session.Callbacks) (*agents.Result, error)
	StartAgent(ctx context.Context, r agents.Request) (*session.Job, error)
	// Usage reports what an agent run and its children used. Either argument may be empty; outputDir takes precedence.
	Usage(ctx context.Context, jobID, outputDir string) (*agents.UsageReport, error)
}

// Code keeps kernels in sandboxes, for the tool set "code". Its methods are safe for concurrent use and return when ctx
// ends. A session belongs to its owner: no other one finds it. The methods of [Service] take the sandbox of a session too.
type Code interface {
	// StartSession makes a sandbox with a kernel. Both end with StopSession, or with this process.
	StartSession(ctx context.Context, r code.Request, w session.Callbacks) (*code.SessionInfo, error)
	// Session returns a live session. The error says how an earlier one of that id ended.
	Session(owner, id string) (*code.SessionInfo, error)
	// Sessions returns the live sessions, the oldest first.
	Sessions(owner string) []code.SessionInfo
	// Execute executes r.Code in the session r.Session. Without one it makes a sandbox, executes the code and removes the
	// sandbox. An exception of the code is not an error, and neither is the end of the kernel: see [code.Result].
	Execute(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error)
	// Check parses r.Code in a sandbox of its own, and does not execute it: see [code.Result].Problems. With r.Session the
	// sandbox has the image of that session.
	Check(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error)
	// Install installs r.Dependencies in the session r.Session.
	Install(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error)
	// Inspect describes a session, with the variables of its kernel and the processes of its sandbox.
	Inspect(ctx context.Context, owner, id string) (*code.SessionState, error)
	// Runtimes returns the languages that a sandbox on an image can execute.
	Runtimes(ctx context.Context, r code.Request, w session.Callbacks) ([]code.Runtime, error)
	// Restart ends the kernel of a session and starts a new one in the same sandbox, also if the old one has ended.
	Restart(ctx context.Context, owner, id string) (*code.SessionInfo, error)
	// Ping asks the kernel of a session for a sign of life: see [code.Session.Ping].
	Ping(ctx context.Context, owner, id string) (busy bool, err error)
	// Bridge sets a variable of a session, and returns the length of the value's JSON in bytes.
	Bridge(ctx context.Context, b code.Bridge) (int, error)
	StopSession(ctx context.Context, owner, id string) error
}
