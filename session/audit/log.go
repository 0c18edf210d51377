package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/session/events"
)

// Entry is one line of a log.
type Entry struct {
	events.Event
	Prev string `json:"prev"` // SHA-256 of the line before, in hexadecimal
}

const (
	headName      = "head"
	segmentSuffix = ".jsonl"
)

// none is the hash before the first entry.
var none = strings.Repeat("0", 2*sha256.Size)

// Log is a log that can be appended to. It is safe for concurrent use, also by several processes.
type Log struct {
	dir  string
	most int64 // segmentMost

	mu    sync.Mutex
	head  *os.File
	file  *os.File // the segment that was last written
	dirty bool
}

// segment opens a segment for appending.
func (l *Log) segment(name string) (*os.File, error) {
	if l.file != nil && filepath.Base(l.file.Name()) == name {
		return l.file, nil
	}
	f, err := os.OpenFile(filepath.Join(l.dir, name), os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	l.sync()
	l.file.Close()
	l.file = f
	return f, nil
}

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

// sumOf returns the hash of a line without its newline.
func sumOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}
