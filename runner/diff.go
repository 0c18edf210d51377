package runner

import "demesne/runner/ipc"

// Diff is what a sandbox made of the files of its image.
type Diff struct {
	Changes   []Change `json:"changes"`
	Truncated bool     `json:"truncated,omitempty"` // there are more
}

// Change is one file.
type Change struct {
	Path     ipc.Bytes `json:"path"`               // absolute; any bytes: quote it before it is shown
	Kind     string    `json:"kind"`               // A, M or D: added, modified, deleted
	Executes string    `json:"executes,omitempty"` // what on a host would execute it, were it taken there; see package hostexec
}
