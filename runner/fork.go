package runner

import "time"

// Forked describes a sandbox or snapshot that was made from the files of another sandbox.
type Forked struct {
	ID     string   `json:"id"`
	Copied int64    `json:"copied_bytes,omitempty"` // bytes that the two do not share
	Still  Duration `json:"still,omitempty"`        // how long the processes of the original were stopped

	Unpublished []Port `json:"unpublished,omitempty"` // ports that the original published and that the fork, created without ports, does not
}

// Layered is the result of a request to write a layer.
type Layered struct {
	Layers  int `json:"layers"`  // number of layers in all
	Entries int `json:"entries"` // entries in this layer; 0: the layer is not worth keeping
}

// LayerOptions say what is in a layer.
type LayerOptions struct {
	// Without names files that are left out, relative to /.
	Without []string `json:"without,omitempty"`
	// Bare holds directories, relative to /, and their modes. One that belongs to uid 0 and has this mode is left out,
	// unless the layer has something below it.
	Bare map[string]int64 `json:"bare,omitempty"`
	// Places adds the empty directories where every sandbox has mounts: /dev, /proc and /sys. A layer that is a whole
	// system has them.
	Places bool `json:"places,omitempty"`
	// NotAfter is the latest time of an entry. nil: no bound.
	NotAfter *time.Time `json:"not_after,omitempty"`
}
