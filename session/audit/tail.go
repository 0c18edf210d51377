package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// head is the content of the file head: the last entry, and how long its segment is. It is written after the entry, so a
// kill in between leaves it one entry behind. Before the first entry it is written with ID 0, so a log without a head is
// always wrong.
type head struct {
	ID      uint64 `json:"id"`
	Sum     string `json:"sha256"` // of the entry's line
	Segment string `json:"segment"`
	Size    int64  `json:"size"`
}

// headSize is the length of the file head, which is padded, so that one write replaces it.
const headSize = 256

func (l *Log) putHead(h head) error {
	b, err := json.Marshal(h)
	if err == nil {
		b = append(b, bytes.Repeat([]byte{' '}, max(1, headSize-1-len(b)))...)
		b[len(b)-1] = '\n'
		_, err = l.head.WriteAt(b, 0)
	}
	return err
}

// readHead returns the head of a log; ok is false if it cannot be read.
func readHead(f io.ReaderAt) (h head, ok bool) {
	b := make([]byte, headSize)
	n, _ := f.ReadAt(b, 0)
	ok = json.Unmarshal(bytes.TrimSpace(b[:n]), &h) == nil && isSegment(h.Segment) && len(h.Sum) == len(none)
	return h, ok
}

// isSegment reports whether name has the form of a segment's.
func isSegment(name string) bool {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	return ok && len(digits) == 20 && strings.Trim(digits, "0123456789") == ""
}

// segments lists the segments of a log, the oldest first.
func segments(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && isSegment(e.Name()) {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all)
	return all, nil
}

// end returns the place after the last entry. It adopts whole lines that were written without the head, and removes a
// partial one: their writers were killed. The head must be locked.
func (l *Log) end() (head, error) {
	h, ok := readHead(l.head)
	if !ok {
		all, err := segments(l.dir)
		if err != nil || len(all) == 0 {
			return head{Sum: none}, err
		}
		h = head{Segment: all[len(all)-1], Sum: none}
	}
	f, err := l.segment(h.Segment)
	if err != nil {
		return h, err
	}
	st, err := f.Stat()
	if err != nil || st.Size() == h.Size {
		return l.later(h, err)
	}
	if st.Size() < h.Size { // lines were removed: the next entry goes on, and verify reports the gap
		h.Size = st.Size()
		return h, nil
	}
	return l.adopt(f, h)
}

// later returns h, unless the next segment was begun without a head.
func (l *Log) later(h head, err error) (head, error) {
	if err != nil {
		return h, err
	}
	name := segmentName(h.ID + 1)
	if h.Size < l.most || h.ID == 0 {
		return h, nil
	}
	f, err := os.Open(filepath.Join(l.dir, name))
	if err != nil {
		return h, nil
	}
	f.Close()
	next, err := l.segment(name)
	if err != nil {
		return h, err
	}
	return l.adopt(next, head{ID: h.ID, Sum: h.Sum, Segment: name})
}

// adopt reads the lines of f after h, and removes a partial one at the end.
func (l *Log) adopt(f *os.File, h head) (head, error) {
	lines := bufio.NewReaderSize(io.NewSectionReader(f, h.Size, 1<<62), 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return h, f.Truncate(h.Size)
		}
		if err != nil {
			return h, err
		}
		text := line[:len(line)-1]
		var e Entry
		if json.Unmarshal(text, &e) == nil && e.ID > h.ID {
			h.ID = e.ID
		}
		h.Sum, h.Size = sumOf(text), h.Size+int64(len(line))
	}
}
