package docker

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// The streams of a command, by their numbers in Docker's frames.
const (
	stdout byte = 1
	stderr byte = 2
)

// frame is a piece of output.
type frame struct {
	at     time.Time
	stream byte
	data   []byte
}

// journalMost bounds the output that a journal keeps, and journalLag how far a reader that must not miss any may be behind
// before the command has to wait.
const journalMost, journalLag = 512 << 10, 256 << 10

// frameCost is what a frame takes beside its data: a command may write single bytes.
const frameCost = 64

func (f frame) size() int64 { return int64(len(f.data)) + frameCost }

// journal keeps the end of what a command wrote, for any number of readers.
type journal struct {
	past bool // readers may ask for what was written before; otherwise frames end when all readers have them

	mu      sync.Mutex
	changed sync.Cond
	frames  []frame
	first   int   // number of frames[0]
	bytes   int64 // in frames
	total   int64 // of all frames
	closed  bool  // no command writes
	ended   bool  // the command has ended: what is left to write fits, and waits for no reader
	runs    int   // how often one began
	readers map[*reader]bool
}

// reader is a place in a journal.
type reader struct {
	j       *journal
	next    int
	read    int64 // bytes before next
	whole   bool  // the command waits for this reader
	until   int   // the run whose end is the reader's
	stopped bool
}

func newJournal(past bool) *journal {
	j := &journal{past: past, readers: map[*reader]bool{}, closed: true}
	j.changed.L = &j.mu
	return j
}

// write adds output. It waits for readers that must not miss any.
func (j *journal) write(stream byte, data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.ended && j.behind() {
		j.changed.Wait()
	}
	f := frame{time.Now(), stream, bytes.Clone(data)}
	j.frames = append(j.frames, f)
	j.bytes += f.size()
	j.total += f.size()
	for j.bytes > journalMost {
		j.drop()
	}
	j.trim()
	j.changed.Broadcast()
}

// drop forgets the oldest frame.
func (j *journal) drop() {
	j.bytes -= j.frames[0].size()
	j.frames[0].data = nil
	j.frames = j.frames[1:]
	j.first++
}

// trim forgets what no reader needs any more.
func (j *journal) trim() {
	if j.past {
		return
	}
	needed := j.first + len(j.frames)
	for r := range j.readers {
		needed = min(needed, r.next)
	}
	for j.first < needed {
		j.drop()
	}
}

func (j *journal) behind() bool {
	for r := range j.readers {
		if r.whole && !r.stopped && j.total-r.read > journalLag {
			return true
		}
	}
	return false
}

// open begins a run.
func (j *journal) open() {
	j.mu.Lock()
	j.closed, j.ended = false, false
	j.runs++
	j.mu.Unlock()
}

// hurry makes writes wait for no reader.
func (j *journal) hurry() {
	j.mu.Lock()
	j.ended = true
	j.changed.Broadcast()
	j.mu.Unlock()
}

// end ends a run, and the readers that do not wait for the next one.
func (j *journal) end() {
	j.mu.Lock()
	j.closed = true
	j.changed.Broadcast()
	j.mu.Unlock()
}

// reader returns a reader of what follows, or with past of all that is kept. With whole it ends with the run, or with the next
// one if none goes on.
func (j *journal) reader(past, whole bool) *reader {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &reader{j: j, next: j.first + len(j.frames), read: j.total, whole: whole}
	if past {
		r.next, r.read = j.first, j.total-j.bytes
	}
	if r.until = j.runs; whole && j.closed {
		r.until++
	}
	j.readers[r] = true
	return r
}

// take returns the next frame. With wait it waits for one until the journal is closed.
func (r *reader) take(wait bool) (f frame, ok bool) {
	j := r.j
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if r.next < j.first {
			r.next, r.read = j.first, j.total-j.bytes
		}
		if at := r.next - j.first; at < len(j.frames) && !r.stopped {
			f = j.frames[at]
			r.next++
			r.read += f.size()
			j.trim()
			j.changed.Broadcast()
			return f, true
		}
		if r.stopped || j.closed && j.runs >= r.until || !wait {
			return f, false
		}
		j.changed.Wait()
	}
}

// skipTo leaves out all but the last n lines.
func (r *reader) skipTo(n int) {
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	lines, at := 0, len(r.j.frames)
	for at > 0 && lines < n {
		at--
		lines += bytes.Count(r.j.frames[at].data, []byte("\n"))
	}
	r.next = r.j.first + at
}

// stop ends take. The command no longer waits for r.
func (r *reader) stop() {
	r.j.mu.Lock()
	r.stopped = true
	delete(r.j.readers, r)
	r.j.trim()
	r.j.changed.Broadcast()
	r.j.mu.Unlock()
}

// framed writes frames with Docker's header of eight bytes: the stream, and the length.
func framed(w io.Writer, stream byte, data []byte) error {
	head := make([]byte, 8, 8+len(data))
	head[0] = stream
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	_, err := w.Write(append(head, data...))
	return err
}
