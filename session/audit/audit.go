// Package audit keeps what happened in an append-only log that shows later changes.
//
//	audit.go    appends; tail.go: finds the end of a log, also after a kill
//	read.go     lists entries and verifies their chain
//
// The log is a directory:
//
//	head                     the last entry's number, hash and place; processes that append hold a lock on it
//	00000000000000000001.jsonl   entries, one JSON object per line; named by the first one's number
//
// Each entry has the SHA-256 of the line before it, so a changed, removed or inserted line breaks the chain, and the head
// shows lines that are missing at the end. A user that can write both files can also make a new chain: the log finds mistakes
// and programs that edit one line. To find more, keep the hash that verify prints somewhere else, and compare it later.
//
// It is files and not a database, because each line can be written by one write(2), a kill leaves at most one partial
// line, which the next append removes, and sha256sum and jq can check and read it. The package links the standard
// library only, so that the command line can read logs. A crash of the machine may lose the last second: see [Log.Append].
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session/events"
)

// Variable names a directory. Every program of demesne appends what it does to the log there. A server sets it for the programs
// that it executes, such as jobs' and agents'.
const Variable = "DEMESNE_AUDIT_LOG"

// Bounds.
const (
	segmentMost = 32 << 20  // bytes of a file, after which the next one begins
	lineMost    = 256 << 10 // bytes of a line that is read
	detailMost  = 4 << 10   // bytes of one detail
	detailsMost = 32
	syncEvery   = time.Second
)

// DefaultDir returns ~/.demesne/audit.
func DefaultDir() (string, error) {
	dir, err := fsutil.StateDir("audit")
	if err != nil {
		return "", fmt.Errorf("find audit log: %w", err)
	}
	return dir, nil
}

// Open opens the log of a directory, which is made if it does not exist.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	head, err := os.OpenFile(filepath.Join(dir, headName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return &Log{dir: dir, most: segmentMost, head: head}, nil
}

// Close writes what is not yet on the disk.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.sync()
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return errors.Join(err, l.head.Close())
}

// Pruned is the type of the entry that Prune appends.
const Pruned events.Type = "audit.pruned"

// Prune removes the files all of whose entries are older than a time, and never the last one. It reports that as an
// entry.
func (l *Log) Prune(before time.Time) (removed int, err error) {
	all, err := segments(l.dir)
	if err != nil {
		return 0, err
	}
	for _, name := range all[:max(0, len(all)-1)] {
		path := filepath.Join(l.dir, name)
		st, err := os.Lstat(path)
		if err != nil || !st.ModTime().Before(before) {
			break // the rest must follow one another
		}
		if err := os.Remove(path); err != nil {
			return removed, fmt.Errorf("prune audit log: %w", err)
		}
		removed++
	}
	if removed > 0 {
		_, err = l.Append(events.Event{Type: Pruned, Detail: map[string]string{"files": strconv.Itoa(removed), "before": before.UTC().Format(time.RFC3339)}})
	}
	return removed, err
}

// sync is called with l.mu held.
func (l *Log) sync() error {
	if !l.dirty || l.file == nil {
		return nil
	}
	l.dirty = false
	return unix.Fdatasync(int(l.file.Fd()))
}

// Append appends an event, and returns it with its number and time. A killed process loses no event that was appended. A
// machine that loses power may lose the last second's events.
func (l *Log) Append(e events.Event) (events.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := flock.Lock(l.head, flock.Exclusive); err != nil {
		return e, fmt.Errorf("lock audit log: %w", err)
	}
	defer unix.Flock(int(l.head.Fd()), unix.LOCK_UN)
	end, err := l.end()
	if err != nil {
		return e, fmt.Errorf("append to audit log: %w", err)
	}
	if e.ID = end.ID + 1; e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Round(time.Microsecond) // without the monotonic clock
	e.Detail = bounded(e.Detail)
	line, err := json.Marshal(Entry{e, end.Sum})
	if err != nil {
		return e, fmt.Errorf("append to audit log: %w", err)
	}
	if err := l.write(end, e.ID, line); err != nil {
		return e, fmt.Errorf("append to audit log: %w", err)
	}
	if !l.dirty {
		l.dirty = true
		time.AfterFunc(syncEvery, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sync()
		})
	}
	return e, nil
}

// write writes one line after end, and then the head. A line of which only a part could be written is removed.
func (l *Log) write(end head, id uint64, line []byte) error {
	next := head{ID: id, Sum: sumOf(line), Segment: end.Segment, Size: end.Size + int64(len(line)) + 1}
	if end.Segment == "" || end.Size >= l.most {
		next.Segment, next.Size, end.Size = segmentName(id), int64(len(line))+1, 0
	}
	if end.Segment == "" {
		if err := l.putHead(head{Sum: none, Segment: next.Segment}); err != nil {
			return err
		}
	}
	f, err := l.segment(next.Segment)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		f.Truncate(end.Size)
		return err
	}
	return l.putHead(next)
}

// bounded returns details of a bounded size and valid UTF-8.
func bounded(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	some := map[string]string{}
	for name, v := range all {
		if some[name] = text.Shorten(v, detailMost); len(some) == detailsMost {
			break
		}
	}
	return some
}
