package runner

import "demesne/runner/ipc"

// Diff lists the changes that a sandbox made to the files of its image.
type Diff struct {
	Changes   []Change `json:"changes"`
	Truncated bool     `json:"truncated,omitempty"` // Changes has only the first ones
}

// Change is one changed file.
type Change struct {
	Path     ipc.Bytes `json:"path"`               // absolute; may hold any bytes: quote it before display
	Kind     string    `json:"kind"`               // A, M or D: added, modified, deleted
	Executes string    `json:"executes,omitempty"` // the host program that would execute the file there; see upper.ExecutedBy
}
