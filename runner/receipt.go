package runner

import (
	"bytes"
	"encoding/json"
)

// Receipt says what a sandbox was asked to be and what the kernel enforces of it.
// A layer reads [Held] only after something was tried, or read back from the
// kernel, that tells it apart from a sandbox without that layer.
type Receipt struct {
	Version     int            `json:"version"` // of this format: 1
	Sandbox     string         `json:"sandbox"`
	Level       Level          `json:"level"`
	Kernel      string         `json:"kernel"` // uname -r
	Image       string         `json:"image"`
	ImageDigest string         `json:"image_digest,omitempty"` // of the image's manifest
	Layers      []Layer        `json:"layers"`
	UIDMap      []IDRange      `json:"uid_map,omitempty"`
	GIDMap      []IDRange      `json:"gid_map,omitempty"`
	Landlock    int            `json:"landlock_abi"`             // 0: none
	Seccomp     string         `json:"seccomp_sha256,omitempty"` // of the filter as loaded
	Limits      []LimitReceipt `json:"limits"`
	Network     string         `json:"network"` // "none": a loopback of its own and nothing else; "filtered: 3 rules"; "open"
}

// MarshalJSON encodes r as if it were not there. It is, so that messages which may hold
// a receipt and do not cost nothing for it: encoding/json examines a type with all that
// it is made of, but asks a Marshaler only when there is something to encode.
func (r *Receipt) MarshalJSON() ([]byte, error) {
	type plain Receipt
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // whether to is the outer encoder's affair
	err := e.Encode((*plain)(r))
	return b.Bytes(), err
}

// UnmarshalJSON is its like.
func (r *Receipt) UnmarshalJSON(b []byte) error {
	type plain Receipt
	return json.Unmarshal(b, (*plain)(r))
}

// Layer is one thing that separates the sandbox from the host.
type Layer struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"` // what was verified, or what stands in for it
	Why    string `json:"why,omitempty"`    // unless held: the kernel's answer
	Fix    string `json:"fix,omitempty"`    // unless held: the line to type that lifts it
}

// Status of a layer, a limit or a probe.
type Status string

// The statuses there are.
const (
	Held     Status = "held"
	Degraded Status = "degraded"
	Missing  Status = "missing"
	Off      Status = "off" // the caller asked for it to be left out (--nesting)
)

// IDRange is a line of /proc/PID/uid_map, seen from where the caller is.
type IDRange struct {
	Inside uint32 `json:"inside"`
	Host   uint32 `json:"host"`
	Size   uint32 `json:"size"`
}

// LimitReceipt is one limit and what enforces it.
type LimitReceipt struct {
	Name      string `json:"name"`      // memory, cpus, pids, disk, freeze-idle
	Value     string `json:"value"`     // as read back: "512", "1073741824", "none"
	Mechanism string `json:"mechanism"` // cgroup2 memory.max, RLIMIT_NPROC, tmpfs size, …
	Status    Status `json:"status"`
	Why       string `json:"why,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// Level sums a receipt up. Levels are ordered; [Spec.Require] names the least
// acceptable one.
type Level string

const (
	// LevelFull: every layer held or left out on request.
	LevelFull Level = "full"
	// LevelDegraded: namespaces hold, something else is less than it could be.
	LevelDegraded Level = "degraded"
	// LevelMinimal: no namespaces; Landlock and seccomp alone.
	LevelMinimal Level = "minimal"
)

// Probe is one line of `demesne check`.
type Probe struct {
	Name   string  `json:"name"`
	Status Status  `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Why    string  `json:"why,omitempty"`
	Fix    string  `json:"fix,omitempty"`
	MS     float64 `json:"ms"`
}
