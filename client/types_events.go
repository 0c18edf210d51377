package client

import "time"

// Event is what happened to a sandbox, a command or a request of the host. Texts may come from sandboxes.
type Event struct {
	ID        uint64            `json:"id" doc:"Rises, also over restarts of the server"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type" example:"execution.completed"`
	Namespace string            `json:"namespace,omitempty"`
	Caller    string            `json:"caller,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty" doc:"Id"`
	Run       string            `json:"run,omitempty" doc:"Links the start of a command to its end"`
	Detail    map[string]string `json:"detail,omitempty"`
}

// AuditEntry is a line of the audit log.
type AuditEntry struct {
	Event
	Prev string `json:"prev" doc:"SHA-256 of the line before, in hexadecimal"`
}

// AuditEntries is a page of the audit log, the oldest entry first.
type AuditEntries struct {
	Entries []AuditEntry `json:"entries" nullable:"false"`
}

// AuditReport is the result of a verification of the audit log.
type AuditReport struct {
	Entries int      `json:"entries"`
	First   uint64   `json:"first" doc:"Above 1: older entries were removed"`
	Last    uint64   `json:"last"`
	SHA256  string   `json:"sha256" doc:"The sum of the last entry's line"`
	Wrong   []string `json:"wrong" nullable:"false" doc:"Empty: no entry was changed"`
}
