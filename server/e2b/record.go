package e2b

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"demesne/session"
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

// sandboxDir, snapshotDir and templateDir hold the records of each kind.
const (
	sandboxDir  = "sandboxes"
	snapshotDir = "snapshots"
	templateDir = "templates"
)

// newID returns a name that cannot be guessed, and is a label of a host name.
func newID() string { return "i" + strings.ToLower(rand.Text())[:19] }

// newToken returns a secret of a sandbox.
func newToken() string { return strings.ToLower(rand.Text() + rand.Text()) }

// recordMost bounds a record.
const recordMost = 1 << 20

// writeRecord replaces a record.
func writeRecord(dir *os.Root, kind, id string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > recordMost {
		return fmt.Errorf("%w: metadata and variables: more than 1 MiB", session.ErrInvalid)
	}
	tmp := path.Join(kind, ".new-"+rand.Text())
	if err := dir.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := dir.Rename(tmp, path.Join(kind, id+".json")); err != nil {
		dir.Remove(tmp)
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

func removeRecord(dir *os.Root, kind, id string) { dir.Remove(path.Join(kind, id+".json")) }

// readRecords calls f with the content of each record of a kind. It removes what a killed server was writing.
func readRecords(dir *os.Root, kind string, f func(id string, text []byte)) error {
	if err := dir.MkdirAll(kind, 0o700); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	d, err := dir.Open(kind)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			dir.Remove(path.Join(kind, name))
			continue
		}
		text, err := readBounded(dir, path.Join(kind, name))
		if err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		f(id, text)
	}
	return nil
}

func readBounded(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, recordMost+1))
	if err == nil && len(text) > recordMost {
		err = errors.New("the record is too large")
	}
	return text, err
}
