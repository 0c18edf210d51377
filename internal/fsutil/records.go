package fsutil

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRecordSize reports a record that is longer than its bound.
var ErrRecordSize = errors.New("record too large")

// Records is a directory of records in JSON: DIR/ID.json, which only its owner can read. Put replaces a record as a whole, even
// if the power fails. Several processes may use one directory.
type Records[T any] struct {
	Dir      string
	Max      int64 // bytes of one record
	Volatile bool  // a power failure may take the last changes: fsync(2) takes longer than what the records describe
}

func (r Records[T]) path(id string) string { return filepath.Join(r.Dir, id+recordEnd) }

const recordEnd = ".json"

// Put writes or replaces a record.
func (r Records[T]) Put(id string, v *T) error {
	text, err := marshal(v, r.Max)
	if err != nil {
		return err
	}
	return place(r.path(id), text, 0o600, !r.Volatile, os.Rename)
}

// Get reads a record. id must be a valid file name.
func (r Records[T]) Get(id string) (*T, error) {
	v := new(T)
	return v, ReadRecord(r.path(id), v, r.Max)
}

// Remove removes a record.
func (r Records[T]) Remove(id string) error { return os.Remove(r.path(id)) }

// IDs returns the ids of all records.
func (r Records[T]) IDs() (ids []string, err error) {
	names, err := os.ReadDir(r.Dir)
	for _, e := range names {
		if id, ok := strings.CutSuffix(e.Name(), recordEnd); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Load returns all records by id, and makes the directory. It skips files that are not records, and removes what a killed
// process was writing: no other process may write records meanwhile.
func (r Records[T]) Load() (map[string]*T, error) {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	names, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	all := map[string]*T{}
	for _, e := range names {
		id, ok := strings.CutSuffix(e.Name(), recordEnd)
		if !ok {
			os.Remove(filepath.Join(r.Dir, e.Name()))
			continue
		}
		text, err := readBounded(r.path(id), r.Max)
		if err != nil {
			return nil, fmt.Errorf("read records: %w", err)
		}
		if v := new(T); json.Unmarshal(text, v) == nil {
			all[id] = v
		}
	}
	return all, nil
}

// WriteRecord writes or replaces a file with a record of at most max bytes.
func WriteRecord(path string, v any, max int64) error {
	text, err := marshal(v, max)
	if err != nil {
		return err
	}
	return WriteFile(path, text, 0o600)
}

// CreateRecord is WriteRecord for a new file: see [CreateFile].
func CreateRecord(path string, v any, max int64) error {
	text, err := marshal(v, max)
	if err != nil {
		return err
	}
	return CreateFile(path, text, 0o600)
}

func marshal(v any, max int64) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && int64(len(text)) > max {
		err = fmt.Errorf("write record: %w", ErrRecordSize)
	}
	return text, err
}

// ReadRecord reads a record of at most max bytes from a file. It follows no link.
func ReadRecord(path string, v any, max int64) error {
	text, err := readBounded(path, max)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

func readBounded(path string, max int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(text)) > max {
		err = fmt.Errorf("read %q: %w", filepath.Base(path), ErrRecordSize)
	}
	return text, err
}
