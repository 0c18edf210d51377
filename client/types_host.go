package client

import "time"

// HostWait is the part of a request for the host that says how long to wait for a person.
type HostWait struct {
	Reason      string  `json:"reason,omitempty" maxLength:"500" doc:"For the person who decides"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"How long to wait for that person. The answer is pending afterwards"`
}

// HostExec asks for a command of the host. Either Argv or Command is set. No shell is involved.
type HostExec struct {
	Argv           []string `json:"argv,omitempty" maxItems:"64" doc:"The program and its arguments"`
	Command        string   `json:"command,omitempty" maxLength:"16384" example:"docker restart web" doc:"The same in one text, with quotes as in a shell"`
	Dir            string   `json:"dir,omitempty" maxLength:"4096" doc:"Default the operator's"`
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty" minimum:"0" doc:"At most the operator's, which is the default"`
	MaxOutput      int      `json:"max_output_bytes,omitempty" minimum:"0" maximum:"1048576" doc:"How much of the end of each stream to return"`
	HostWait
}

// HostPattern asks for all commands of a pattern, for a time.
type HostPattern struct {
	Pattern []string `json:"pattern" minItems:"1" maxItems:"64" doc:"Words, of which * stands for one, or for a part of one"`
	HostWait
}

// HostFile asks for a file or directory of the host.
type HostFile struct {
	Path    string `json:"path" maxLength:"4096"`
	Offset  int64  `json:"offset,omitempty" minimum:"0" doc:"The first byte of a read"`
	Limit   int64  `json:"limit,omitempty" minimum:"0" maximum:"262144" doc:"How many bytes a read returns"`
	Content []byte `json:"content,omitempty" maxLength:"1398104" doc:"The content of a write, in base64"`
	Sandbox string `json:"sandbox,omitempty" maxLength:"128" doc:"The sandbox of a copy"`
	Dst     string `json:"dst,omitempty" maxLength:"4096" doc:"The absolute path of a copy in the sandbox"`
	HostWait
}

// HostOutcome says what has become of a request.
type HostOutcome struct {
	ID      string     `json:"id"`
	State   string     `json:"state" doc:"done, pending, refused, expired, failed, granted, approved, running or lost"`
	Message string     `json:"message,omitempty"`
	Expires *time.Time `json:"expires,omitempty" doc:"The end of a pending request or of a grant"`

	ExitCode    *int        `json:"exit_code,omitempty"`
	Stdout      *string     `json:"stdout,omitempty"`
	Stderr      *string     `json:"stderr,omitempty"`
	StdoutBytes int64       `json:"stdout_bytes,omitempty" doc:"The size of all of it"`
	StderrBytes int64       `json:"stderr_bytes,omitempty"`
	TimedOut    bool        `json:"timed_out,omitempty"`
	Content     []byte      `json:"content,omitempty" doc:"The content of a file, in base64"`
	Size        *int64      `json:"size,omitempty"`
	NextOffset  int64       `json:"next_offset,omitempty"`
	Created     bool        `json:"created,omitempty"`
	Entries     []HostEntry `json:"entries,omitempty"`
	Truncated   bool        `json:"truncated,omitempty"`
	Skipped     int         `json:"skipped,omitempty"`
}

// HostEntry is a file of a directory of the host.
type HostEntry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type" doc:"file, directory, link or other"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
}

// HostAccess is what a caller may do without a question.
type HostAccess struct {
	Enabled     bool     `json:"enabled"`
	Ask         bool     `json:"ask" doc:"A person can allow more"`
	Allow       []string `json:"allow" nullable:"false" doc:"Patterns of commands"`
	Directories []string `json:"directories" nullable:"false" doc:"Where they may start"`
	Read        []string `json:"read" nullable:"false"`
	Write       []string `json:"write" nullable:"false"`
}

// HostRequest is a request that waits for a person, or waited. Callers that are not the operator see What in their own words, and
// neither Detail nor Digest.
type HostRequest struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	Kind      string     `json:"kind"`
	Text      string     `json:"text" doc:"What it is for, in one line"`
	Detail    string     `json:"detail,omitempty" doc:"All that a person has to know, a line for each fact"`
	Digest    string     `json:"digest,omitempty" doc:"Identifies what was shown. An approval needs it"`
	Caller    string     `json:"caller,omitempty"`
	Namespace string     `json:"namespace,omitempty"`
	Reason    string     `json:"reason,omitempty" doc:"The caller's own words"`
	Problem   string     `json:"problem,omitempty" doc:"Why it cannot be approved"`
	Asked     time.Time  `json:"asked"`
	Expires   *time.Time `json:"expires,omitempty"`
	By        string     `json:"by,omitempty"`
	Grant     float64    `json:"grant_seconds,omitempty" doc:"How long an approval holds at most, by the policy: of a pattern, or of the very words of a command; 0: it is for once"`
}

// HostApproval approves a request.
type HostApproval struct {
	Digest     string  `json:"digest" maxLength:"64" doc:"The digest of the request as it was shown"`
	ForSeconds float64 `json:"for_seconds,omitempty" minimum:"0" doc:"How long the approval holds, at most the policy's time; 0: a pattern has the policy's time, and a command runs once"`
}
