package jupyter

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the history.
const (
	maxHistory     = 1000    // lines that are recalled
	maxHistoryFile = 1 << 20 // bytes; a larger file is replaced by its last lines
)

// history is what was typed, in a file that only its user can read.
type history struct {
	path string
	all  []string // the oldest first
}

// openHistory reads a history. Without a readable file it begins with none.
func openHistory(path string) *history {
	h := &history{path: path}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return h
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	f.Seek(max(0, size-maxHistoryFile), io.SeekStart)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxHistoryFile)
	for lines.Scan() {
		h.all = append(h.all, strings.ToValidUTF8(lines.Text(), "?"))
	}
	h.all = h.all[max(0, len(h.all)-maxHistory):]
	if size > maxHistoryFile {
		if p, err := openPlace(path, ""); err == nil {
			p.replace([]byte(strings.Join(h.all, "\n")+"\n"), 0o600)
			p.close()
		}
	}
	return h
}

// Add adds a line, unless it repeats the last one.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || len(h.all) > 0 && h.all[len(h.all)-1] == line {
		return
	}
	h.all = append(h.all, line)
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return // the line can still be recalled in this session
	}
	defer f.Close()
	io.WriteString(f, line+"\n")
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.all) }

// At returns a line; 0 is the newest.
func (h *history) At(i int) string { return h.all[len(h.all)-1-i] }
