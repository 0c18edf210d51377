package runner

// Forked is a sandbox, or a snapshot, made of the files of another.
type Forked struct {
	ID     string   `json:"id"`
	Copied int64    `json:"copied_bytes,omitempty"` // that the two do not share
	Still  Duration `json:"still,omitempty"`        // how long the processes of what was forked were stopped

	Unpublished []Port `json:"unpublished,omitempty"` // published by what was forked, and not by a fork that was given no ports
}

// Layered is what became of a layer that was to be written.
type Layered struct {
	Layers  int `json:"layers"`  // there are
	Entries int `json:"entries"` // in this one; without any it is not worth keeping
}
