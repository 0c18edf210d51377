package api

import (
	"cmp"
	"strconv"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// Attached is the reply to an attach call. It carries the terminal as a descriptor.
type Attached struct {
	Exec   uint64    `json:"exec"`
	Recent ipc.Bytes `json:"recent,omitempty"` // the end of the output written while no caller had the terminal
}

// Introduction is the body of a caller's first message. A caller that sends none is the command line.
type Introduction struct {
	Frontend runner.Frontend `json:"frontend,omitempty"`
	Totals   *runner.Limits  `json:"totals,omitempty"` // bound the sum of all sandboxes' limits, for sandboxes of this caller; zero: unbounded
	Quota    *runner.Quota   `json:"quota,omitempty"`  // bounds the persistent sandboxes that this caller makes; nil: the zero Quota
	Retire   bool            `json:"retire,omitempty"` // do not linger after any caller
	Linger   *time.Duration  `json:"linger,omitempty"` // how long the runner stays if this was its last caller; nil: [runner.DefaultLinger]
}

// Hello is the runner's first message on a new connection. It carries no version: a caller only finds runners with its own
// [Protocol].
type Hello struct {
	PID  int    `json:"pid"`
	Mode string `json:"mode"`
}

// Slot is the reply to a reserve call, and the body of a release call. The place ends with a create call that names it
// (see [runner.Handover]), with a release call, or with the connection.
type Slot struct {
	Slot string `json:"slot,omitempty"` // empty: none is needed, because the key has a sandbox, or a call under way makes one
}

// ReserveRequest is the body of a reserve call.
type ReserveRequest struct {
	Key string `json:"key,omitempty"`
}

// Created is the reply to a create call.
type Created struct {
	ID    string         `json:"id"`
	Level runner.Level   `json:"level"`
	Trace []runner.Stage `json:"trace"`

	Unmapped *runner.User `json:"unmapped_user,omitempty"` // the image's user, for which 0:0 stands in

	Existing bool `json:"existing,omitempty"` // a sandbox with the key exists; the caller opens it
	Replaced bool `json:"replaced,omitempty"` // a sandbox with the key existed and was removed

	Info *runner.Info `json:"info,omitempty"` // of a new persistent sandbox; its receipt has only the level
}

// Target names a sandbox by id or name.
type Target struct {
	Sandbox string `json:"sandbox"`
	Keep    bool   `json:"keep,omitempty"` // for a stop call: keep the files

	// Grace is how long the processes have to end after the stop signal, before they are killed. Only with Keep.
	Grace runner.Duration `json:"grace,omitempty"`
}

// ListBytes bounds the reply to a list call, which has the oldest sandboxes. Thousands do not fit into one message.
const ListBytes = 4 << 20

// ListRequest is the body of a list call: the reply has the sandboxes that follow that one in the order of the list.
type ListRequest struct {
	Created time.Time `json:"created,omitzero"`
	After   string    `json:"after,omitempty"` // its id; empty: all
}

// Follows reports whether i comes after the sandbox that r names.
func (r ListRequest) Follows(i *runner.Info) bool {
	return r.After == "" || OlderFirst(runner.Info{Created: r.Created, ID: r.After}, *i) < 0
}

// OlderFirst is the order of a list: by creation time, then by id. A monotonic clock reading does not reach callers.
func OlderFirst(a, b runner.Info) int {
	return cmp.Or(a.Created.Round(0).Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// Opened is the reply to an open or restart call.
type Opened struct {
	ID             string       `json:"id"`
	Level          runner.Level `json:"level"`
	Out            string       `json:"output_dir"`
	Restarted      bool         `json:"restarted,omitempty"`
	MissingSecrets []string     `json:"missing_secrets,omitempty"` // names of secrets that were not available at the restart
	Served         []string     `json:"served,omitempty"`          // see [runner.Spec.Served]
}

// Ended is the reply to a stop call.
type Ended struct {
	Served []string `json:"served,omitempty"` // see [runner.Spec.Served]; empty if the sandbox was not live
}

// LayerRequest is the body of a layer call. Its descriptor is the file to which the layer is written.
type LayerRequest struct {
	Sandbox string              `json:"sandbox"`
	Layer   int                 `json:"layer"`
	Options runner.LayerOptions `json:"options,omitzero"`
}

// Answer is the body of an answer call.
type Answer struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Allow   bool   `json:"allow"`
	Silent  bool   `json:"silent,omitempty"` // no answer was given, and none will follow
}

// Restart is the body of a restart call. It carries the same descriptors as a create call.
type Restart struct {
	Sandbox string `json:"sandbox"`
	Exposed bool   `json:"exposed,omitempty"` // see Spec; the caller determines it again for each restart
	Granted string `json:"granted,omitempty"` // see Spec; the caller determines it again for each restart

	// As in Egress. These values are never written to a file.
	Upstream map[string]string `json:"upstream,omitempty"`
	Trust    runner.Trust      `json:"trust,omitzero"`
	Secrets  []runner.Secret   `json:"secrets,omitempty"`
	Routes   []runner.Route    `json:"routes,omitempty"` // with Port, Token and Header; the record has the other fields
}

// ForkRequest is the body of a fork call.
type ForkRequest struct {
	Sandbox   string `json:"sandbox"`
	Name      string `json:"name,omitempty"`
	Out       string `json:"out,omitempty"`
	Snapshot  bool   `json:"snapshot,omitempty"`
	Ephemeral bool   `json:"ephemeral,omitempty"` // remove it when the connection ends, with its processes

	Publish  []runner.Port   `json:"publish,omitempty"` // for a fork, which inherits no ports from the source sandbox
	Mounts   []runner.Mount  `json:"mounts,omitempty"`  // replace the mounts of the same Target
	Routes   []runner.Route  `json:"routes,omitempty"`  // replace the routes of the same Port, without their credentials
	ID       string          `json:"-"`                 // of the fork, set by the runner; empty: a new one
	Frontend runner.Frontend `json:"-"`                 // the caller's frontend, set by the runner: a fork belongs to the frontend that makes it
}

// FileLayer names the descriptor of a layer call to which the layer is written.
const FileLayer = "layer"

// Descriptor names of a create call. FileSame prefixes a file as the caller opened it. The runner opens the path
// again in its own mount namespace, where it may bind it, and accepts only the same inode. FileMount prefixes a
// detached mount made by real root, for files that a runner under a high uid could not reach.
const (
	FileSame  = "same."
	FileMount = "mount."

	SourceInit      = "init"
	SourceOut       = "out"
	SourceWorkspace = "workspace"
	SourceRootfs    = "rootfs"

	FileLog   = "egress-log" // open for writing
	FileProxy = "proxy"      // demesne-proxy, for a spec with an Egress; a runner executes the first one it receives
)

// SourceInput returns the name of the i-th input.
func SourceInput(i int) string { return "in." + strconv.Itoa(i) }

// FileRecord returns the name of the file that receives the usage records of the i-th route, open for writing. Routes
// with the same file share the descriptor of the first of them.
func FileRecord(i int) string { return "record." + strconv.Itoa(i) }

// FileGate returns the name of the socket that is the Gate of the i-th route, in a create call and in a serve call to the proxy.
func FileGate(i int) string { return "gate." + strconv.Itoa(i) }

// SourceMount returns the name of the i-th of Spec.Mounts.
func SourceMount(i int) string { return "mount." + strconv.Itoa(i) }

// SourceUpper returns the name of the upper of the i-th of Spec.Mounts.
func SourceUpper(i int) string { return "upper." + strconv.Itoa(i) }

// FileListen returns the name of the listener of a port of Egress.Listen, in the reply to a create or run call.
func FileListen(port uint16) string { return "listen." + strconv.Itoa(int(port)) }

// FilePort returns the name of the listener of the i-th published port.
func FilePort(i int) string { return "port." + strconv.Itoa(i) }
