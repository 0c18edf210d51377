package hostcmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// State is the state of a request.
type State string

// The states. A request is Lost if its process ended while it was Pending or Approved, or was killed while it ran.
const (
	Pending  State = "pending"
	Approved State = "approved" // not yet begun
	Running  State = "running"
	Done     State = "done"
	Failed   State = "failed" // approved, and not possible
	Refused  State = "refused"
	Expired  State = "expired"
	Granted  State = "granted" // a pattern, until Until
	Lost     State = "lost"
)

// over reports whether nothing follows.
func (s State) over() bool { return s != Pending && s != Approved && s != Running && s != Granted }

// Record is a request on disk. The file is for people and for decisions: its text is never executed.
type Record struct {
	Request Request   `json:"request"`
	Owner   string    `json:"owner"` // the process that asked
	State   State     `json:"state"`
	Digest  string    `json:"digest"` // that was approved
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Until   time.Time `json:"until,omitzero"` // of a grant
	Why     string    `json:"why,omitempty"`
	Exit    *int      `json:"exit,omitempty"`
}

// Errors of decisions.
var (
	ErrNone    = errors.New("no such request")
	ErrDecided = errors.New("the request is not pending")
	ErrDigest  = errors.New("the request is not what was shown")
	ErrOnce    = errors.New("it can be approved once, and not for a time")
)

// Store is a directory with requests, of several processes of one user. It has mode 0700, and its files 0600.
type Store struct{ dir string }

// Bounds of a store.
const (
	recordsKept = 200
	maxRecord   = 256 << 10
)

// OpenStore opens a store, and makes the directory. Other users must not be able to reach it.
func OpenStore(dir string) (*Store, error) {
	s := &Store{dir}
	for _, d := range []string{s.records().Dir, s.owners()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open host requests: %w", err)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("open host requests: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("open host requests: %q: other users can reach it", dir)
	}
	return s, nil
}

func (s *Store) owners() string { return filepath.Join(s.dir, "owners") }

// own makes this process an owner of requests, until the file is closed. Without the lock, tidy of another process could find the
// file before it is locked.
func (s *Store) own() (name string, alive *os.File, err error) {
	lock, err := s.lock()
	if err != nil {
		return "", nil, err
	}
	defer lock.Close()
	name = strings.ToLower(rand.Text()[:16])
	alive, err = flock.TryOpen(filepath.Join(s.owners(), name), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	return name, alive, err
}

// alive reports whether an owner's process exists.
func (s *Store) alive(owner string) bool {
	held, err := flock.Held(filepath.Join(s.owners(), filepath.Base(owner)))
	return err == nil && held
}

func (s *Store) lock() (io.Closer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f, err := flock.Open(ctx, filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("lock host requests: %w", err)
	}
	return f, nil
}

func isID(id string) bool {
	return len(id) == 16 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func (s *Store) records() fsutil.Records[Record] {
	return fsutil.Records[Record]{Dir: filepath.Join(s.dir, "requests"), Max: maxRecord}
}

// Get returns a request. The state of one whose process ended is Lost.
func (s *Store) Get(id string) (*Record, error) {
	if !isID(id) {
		return nil, ErrNone
	}
	r, err := s.records().Get(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil || r.Request.ID != id {
		return nil, fmt.Errorf("request %q: not a record", id)
	}
	if !r.State.over() && !s.alive(r.Owner) {
		r.State, r.Why = Lost, "the server that asked has ended"
	}
	switch now := time.Now(); {
	case r.State == Pending && now.After(r.Request.Expires):
		r.State = Expired
	case r.State == Granted && now.After(r.Until):
		r.State = Expired
	}
	return r, nil
}

func (s *Store) put(r *Record) error {
	if err := s.records().Put(r.Request.ID, r); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	return nil
}

// List returns the requests, the oldest first. It skips files that are not records.
func (s *Store) List() (all []*Record, err error) {
	ids, err := s.records().IDs()
	if err != nil {
		return nil, fmt.Errorf("list host requests: %w", err)
	}
	for _, id := range ids {
		if r, err := s.Get(id); err == nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return a.Request.Filed.Compare(b.Request.Filed) })
	return all, nil
}

// Decision is a person's answer.
type Decision struct {
	ID      string
	Digest  string // of the request that the person saw
	Approve bool
	For     time.Duration // how long a grant holds; 0: a pattern has the policy's time, and a command runs once
	By      string
}

// Decide records a decision. The process that asked obeys it. A granted pattern may be refused afterwards, which ends the grant.
func (s *Store) Decide(d Decision) (*Record, error) {
	lock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	r, err := s.Get(d.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case r.State != Pending && !(r.State == Granted && !d.Approve):
		return r, fmt.Errorf("request %q is %s: %w", d.ID, r.State, ErrDecided)
	case d.Approve && d.Digest != r.Request.Digest():
		return r, fmt.Errorf("request %q: %w", d.ID, ErrDigest)
	case d.Approve && r.Request.Problem != "":
		return r, fmt.Errorf("request %q: %s", d.ID, r.Request.Problem)
	case d.Approve && d.For > 0 && !r.Request.Lasting:
		return r, fmt.Errorf("request %q: %w", d.ID, ErrOnce)
	}
	r.State, r.By, r.At = Refused, d.By, time.Now().UTC()
	if d.Approve {
		r.State, r.Digest = Approved, d.Digest
		if d.For > 0 {
			r.Until = r.At.Add(d.For)
		}
	}
	return r, s.put(r)
}

// change replaces a record of this process if its state is from.
func (s *Store) change(id string, from State, f func(*Record)) error {
	lock, err := s.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	r, err := s.Get(id)
	if err != nil {
		return err
	}
	if r.State != from && !(r.State == Expired && from == Pending) {
		return fmt.Errorf("request %q is %s: %w", id, r.State, ErrDecided)
	}
	f(r)
	return s.put(r)
}

// tidy removes the oldest requests that are over, and the files of dead owners.
func (s *Store) tidy() error {
	lock, err := s.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	all, err := s.List()
	if err != nil {
		return err
	}
	for _, r := range all[:max(0, len(all)-recordsKept)] { // the oldest
		if r.State.over() {
			s.records().Remove(r.Request.ID)
		}
	}
	owners, err := os.ReadDir(s.owners())
	for _, e := range owners {
		if !s.alive(e.Name()) {
			os.Remove(filepath.Join(s.owners(), e.Name()))
		}
	}
	return err
}
