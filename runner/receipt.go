package runner

import (
	"bytes"
	"encoding/json"
)

// Receipt records what a sandbox was requested to be and what the kernel enforces of it. The status of a layer is
// [Held] only after a test or a value read back from the kernel. That evidence must distinguish the sandbox from
// one without the layer.
type Receipt struct {
	Version     int            `json:"version"` // version of this format: 1
	Sandbox     string         `json:"sandbox"`
	Level       Level          `json:"level"`
	Kernel      string         `json:"kernel"` // uname -r
	Image       string         `json:"image"`
	ImageDigest string         `json:"image_digest,omitempty"` // digest of the image's manifest
	Layers      []Layer        `json:"layers"`
	UIDMap      []IDRange      `json:"uid_map,omitempty"`
	GIDMap      []IDRange      `json:"gid_map,omitempty"`
	Landlock    int            `json:"landlock_abi"`             // 0: no Landlock
	Seccomp     string         `json:"seccomp_sha256,omitempty"` // of the loaded filter
	Limits      []LimitReceipt `json:"limits"`
	Network     string         `json:"network"` // "none": only its own loopback; "filtered: 3 rules, 1 route"; "open"
}

// MarshalJSON encodes r exactly as encoding/json would without this method. The method exists for speed:
// encoding/json inspects a type and all its fields in advance, but calls a Marshaler only when it has a value to
// encode. Messages without a receipt therefore do not pay for one.
func (r *Receipt) MarshalJSON() ([]byte, error) {
	type plain Receipt
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the outer encoder decides about escaping
	err := e.Encode((*plain)(r))
	return b.Bytes(), err
}

// UnmarshalJSON is the counterpart of MarshalJSON.
func (r *Receipt) UnmarshalJSON(b []byte) error {
	type plain Receipt
	return json.Unmarshal(b, (*plain)(r))
}

// Layer is one mechanism that separates the sandbox from the host.
type Layer struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"` // what was verified, or the substitute in use
	Why    string `json:"why,omitempty"`    // the kernel's answer, unless Status is Held
	Fix    string `json:"fix,omitempty"`    // the command that removes the cause, unless Status is Held
}

// Status is the state of a layer, a limit or a probe.
type Status string

// The possible statuses.
const (
	Held     Status = "held"
	Degraded Status = "degraded"
	Missing  Status = "missing"
	Off      Status = "off" // the caller requested to leave it out (--nesting)
)

// IDRange is a line of /proc/PID/uid_map as the caller's namespace shows it.
type IDRange struct {
	Inside uint32 `json:"inside"`
	Host   uint32 `json:"host"`
	Size   uint32 `json:"size"`
}

// LimitReceipt is one limit and the mechanism that enforces it.
type LimitReceipt struct {
	Name      string `json:"name"`      // memory, cpus, pids, disk, pause-idle
	Value     string `json:"value"`     // as read back: "512", "1073741824", "none"
	Mechanism string `json:"mechanism"` // cgroup2 memory.max, RLIMIT_NPROC, tmpfs size, …
	Status    Status `json:"status"`
	Why       string `json:"why,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// Level summarizes a receipt. Levels are ordered; [Spec.Require] names the lowest acceptable one.
type Level string

const (
	// LevelFull: every layer is enforced, or was left out on request.
	LevelFull Level = "full"
	// LevelDegraded: namespaces are enforced; at least one other layer is weaker than it could be.
	LevelDegraded Level = "degraded"
	// LevelMinimal: no namespaces; only Landlock and seccomp.
	LevelMinimal Level = "minimal"
)

// Probe is one line of the output of demesne check.
type Probe struct {
	Name   string  `json:"name"`
	Status Status  `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Why    string  `json:"why,omitempty"`
	Fix    string  `json:"fix,omitempty"`
	MS     float64 `json:"ms"`
}
