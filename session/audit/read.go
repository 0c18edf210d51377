package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/session/events"
)

// Filter selects entries. Its zero value selects all.
type Filter struct {
	After     uint64      // entries with a higher number
	Since     time.Time   // entries of this time and later
	Type      events.Type // empty: any
	Namespace *string     // nil: any
	Sandbox   string      // empty: any
}

// Match reports whether f selects an event.
func (f *Filter) Match(e *events.Event) bool {
	return e.ID > f.After && !e.Time.Before(f.Since) && (f.Type == "" || e.Type == f.Type || strings.HasPrefix(string(e.Type), string(f.Type)+".")) &&
		(f.Namespace == nil || e.Namespace == *f.Namespace) && (f.Sandbox == "" || e.Sandbox == f.Sandbox)
}

// Read calls f with each selected entry of a log, the oldest first, until f returns false. Lines that are not entries are
// left out: [Verify] reports them.
func Read(ctx context.Context, dir string, which Filter, f func(Entry) bool) error {
	return lines(ctx, dir, which.After, func(_ place, line []byte, _ bool) bool {
		var e Entry
		return json.Unmarshal(line, &e) != nil || !which.Match(&e.Event) || f(e)
	})
}

// place is a line of a segment.
type place struct {
	segment string
	line    int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.segment, p.line) }

// lines calls f with each line of the segments that may have entries after a number, and with the rest behind the last
// newline as a partial one.
func lines(ctx context.Context, dir string, after uint64, f func(at place, line []byte, partial bool) bool) error {
	all, err := segments(dir)
	if err != nil {
		return err
	}
	for i, name := range all {
		if i+1 < len(all) && firstOf(all[i+1]) <= after+1 {
			continue
		}
		more, err := segmentLines(ctx, dir, name, f)
		if err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// firstOf returns the number of a segment's first entry.
func firstOf(segment string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(segment, segmentSuffix), 10, 64)
	return n
}

func segmentLines(ctx context.Context, dir, name string, f func(place, []byte, bool) bool) (more bool, err error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	from := bufio.NewReaderSize(file, lineMost)
	for at := (place{name, 1}); ; at.line++ {
		line, err := from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return false, fmt.Errorf("%s: longer than %d bytes", at, lineMost)
		}
		if errors.Is(err, io.EOF) {
			return len(line) == 0 || f(at, line, true), nil
		}
		if err != nil {
			return false, err
		}
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if !f(at, bytes.TrimSuffix(line, []byte{'\n'}), false) {
			return false, nil
		}
	}
}

// Report is the result of a verification.
type Report struct {
	Entries int      `json:"entries"`
	First   uint64   `json:"first"` // number of the first entry; above 1: older ones were removed
	Last    uint64   `json:"last"`
	Sum     string   `json:"sha256"` // of the last entry's line
	Wrong   []string `json:"wrong"`  // empty: the log is intact
}

// wrongMost bounds the list of what is wrong.
const wrongMost = 20

func (r *Report) wrong(format string, args ...any) {
	if len(r.Wrong) < wrongMost {
		r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
	}
}

// Verify reads a whole log, and checks the chain of its entries. Marks are hashes of entries, by number, that were kept
// elsewhere.
func Verify(ctx context.Context, dir string, marks map[uint64]string) (*Report, error) {
	h, ok, err := headOf(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Wrong: []string{}, Sum: none}
	wanted := map[uint64][]string{}
	for id, sum := range marks {
		wanted[id] = []string{sum}
	}
	if ok && h.ID > 0 {
		wanted[h.ID] = append(wanted[h.ID], h.Sum)
	}
	err = lines(ctx, dir, 0, func(at place, line []byte, partial bool) bool {
		r.line(at, line, partial, h)
		if slices.ContainsFunc(wanted[r.Last], func(sum string) bool { return sum != r.Sum }) {
			r.wrong("%s: entry %d is not the one that was written", at, r.Last)
		}
		delete(wanted, r.Last)
		return true
	})
	for id := range wanted {
		if id >= r.First {
			r.wrong("entry %d is missing", id)
		}
	}
	if !ok && r.Entries > 0 {
		r.wrong("%s is missing or cannot be read: entries at the end may be missing", headName)
	}
	return r, err
}

// line checks one line against the one before.
func (r *Report) line(at place, line []byte, partial bool, h head) {
	var e Entry
	switch err := json.Unmarshal(line, &e); {
	case partial && at.segment >= h.Segment && r.Last >= h.ID: // an append was killed, or is under way
		return
	case partial || err != nil || e.ID == 0:
		r.wrong("%s: not an entry", at)
	case r.Entries == 0 && e.ID == 1 && e.Prev != none:
		r.wrong("%s: entry 1 is not the first", at)
	case r.Entries > 0 && e.ID != r.Last+1:
		r.wrong("%s: entry %d follows entry %d", at, e.ID, r.Last)
	case r.Entries > 0 && e.Prev != r.Sum:
		r.wrong("%s: entry %d was changed: its hash is not the one that entry %d has", at, r.Last, e.ID)
	}
	if r.Entries++; r.Entries == 1 {
		r.First = e.ID
	}
	r.Last, r.Sum = max(e.ID, r.Last), sumOf(line)
}

// Newest returns the number of the last entry, or 0 for an empty log.
func Newest(dir string) (uint64, error) {
	h, _, err := headOf(dir)
	return h.ID, err
}

func headOf(dir string) (h head, ok bool, err error) {
	f, err := os.OpenFile(filepath.Join(dir, headName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	h, ok = readHead(f)
	return h, ok, nil
}

// Last returns the newest entries, at most most, the oldest of them first.
func Last(ctx context.Context, dir string, most int) (all []Entry, err error) {
	err = Read(ctx, dir, Filter{}, func(e Entry) bool {
		if all = append(all, e); len(all) > 2*most {
			all = append([]Entry(nil), all[len(all)-most:]...)
		}
		return true
	})
	return all[max(0, len(all)-most):], err
}
