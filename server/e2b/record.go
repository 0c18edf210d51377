package e2b

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"demesne/internal/fsutil"
)

// States of a sandbox.
const (
	creating = "creating"
	running  = "running"
	paused   = "paused"
	ended    = "ended" // removed; no record has it
)

// record is the server's record of a sandbox, in addition to the runner's own. It is one file, which is replaced at once.
type record struct {
	ID           string            `json:"id"`
	Template     string            `json:"template"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Token        string            `json:"token"`
	TrafficToken string            `json:"traffic_token,omitempty"`
	Started      time.Time         `json:"started"`
	End          time.Time         `json:"end"`
	State        string            `json:"state"`
	Cold         bool              `json:"cold,omitempty"` // paused without its processes
	AutoPause    bool              `json:"auto_pause,omitempty"`
	AutoResume   bool              `json:"auto_resume,omitempty"`
	Network      network           `json:"network"`
	Volumes      []volumeMount     `json:"volumes,omitempty"`
	CPUs         int               `json:"cpus,omitempty"`
	MemoryMB     int               `json:"memory_mb,omitempty"`
	DiskMB       int               `json:"disk_mb,omitempty"`
	PauseCold    bool              `json:"pause_cold,omitempty"` // AutoPause ends the processes
	Creation     *creation         `json:"creation,omitempty"`
	Start        *startup          `json:"start,omitempty"`
}

// startup is the program that each sandbox of a template starts with. E2B's sandboxes have it from the template's memory;
// here it starts with the sandbox, and again with each start of the processes.
type startup struct {
	Cmd   string `json:"cmd"`
	Ready string `json:"ready,omitempty"` // succeeds as soon as the sandbox can be used; empty: at once
	User  string `json:"user,omitempty"`  // empty: the default user
	Dir   string `json:"dir,omitempty"`   // empty: the user's home
}

// creation is the create request with a key: the sandbox lives as long as its record has the key.
type creation struct {
	Key  string `json:"key"`
	Body string `json:"body"` // SHA-256 of the request
}

// prefix begins the names of this server's sandboxes in the runner.
const prefix = "e2b-"

func (r *record) name() string { return prefix + r.ID }

// newID returns a name that cannot be guessed, and is a label of a host name.
func newID() string { return "i" + strings.ToLower(rand.Text())[:19] }

// newSandboxID returns the id of a sandbox, which may say whose it is.
func (o *Options) newSandboxID() string {
	if o.Suffix == "" {
		return newID()
	}
	return newID() + "-" + o.Suffix
}

// newBuildID returns a UUID, which the SDK for Python needs.
func newBuildID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newToken returns a secret of a sandbox.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// recordsOf returns the records of a kind, in a directory of the server's state.
func recordsOf[T any](state *os.Root, kind string) fsutil.Records[T] {
	return fsutil.Records[T]{Dir: filepath.Join(state.Name(), kind), Max: 1 << 20}
}
