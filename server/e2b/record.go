package e2b

import (
	"crypto/rand"
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
)

// record is what the server knows about a sandbox beside the runner's own record. It is one file, which is replaced at once.
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
}

// prefix begins the names of this server's sandboxes in the runner.
const prefix = "e2b-"

func (r *record) name() string { return prefix + r.ID }

// newID returns a name that cannot be guessed, and is a label of a host name.
func newID() string { return "i" + strings.ToLower(rand.Text())[:19] }

// newToken returns a secret of a sandbox.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// recordsOf returns the records of a kind, in a directory of the server's state.
func recordsOf[T any](state *os.Root, kind string) fsutil.Records[T] {
	return fsutil.Records[T]{Dir: filepath.Join(state.Name(), kind), Max: 1 << 20}
}
