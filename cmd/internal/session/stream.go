package session

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/mcp/backend"
	"demesne/runner/jobs"
)

// streams are a command's two outputs.
type streams struct{ out, errs *stream }

func newStreams() streams {
	return streams{out: newStream(backend.StdoutMax), errs: newStream(backend.StderrMax)}
}

// place gives what was kept its names in the output directory; without one it is gone.
func (s streams) place(o *outDir) error {
	return errors.Join(s.out.place(o, "stdout.log"), s.errs.place(o, "stderr.log"))
}

// silent says whether nothing was written to either stream. It is known when both are finished.
func (s streams) silent() bool { return s.out.last().Bytes == 0 && s.errs.last().Bytes == 0 }

// drop is for streams of which nothing is kept.
func (s streams) drop() { s.place(nil) }

// stream takes what a command writes to one of its outputs: the end in memory, all of it in
// a file without a name, and a copy for whoever else listens.
type stream struct {
	most int // of the end
	also io.Writer
	dir  string // see keep; empty: the end is all that is kept
	file *os.File
	log  *jobs.Log
	lost error // why there is no file

	mu    sync.Mutex
	end   []byte // at most twice most
	bytes int64

	pipe *os.File // ours
	done chan struct{}
}

func newStream(most int) *stream { return &stream{most: most} }

// keptMax bounds what is kept of a stream in a file, in bytes: a command that writes for two
// days must not fill the disk of whoever runs it. The end is what is kept.
const keptMax = 8 << 30

// keep has the stream kept whole, on the file system of dir.
func (s *stream) keep(dir string) { s.dir = dir }

// begin makes the file. It is the reader's: a file system may take a while, and the command that is
// to write is being started meanwhile.
func (s *stream) begin() {
	if s.dir == "" {
		return
	}
	if s.file, s.lost = nameless(s.dir); s.lost == nil {
		s.log = jobs.NewLog(s.file, keptMax)
	}
}

// place is called when the stream is finished or abandoned.
func (s *stream) place(o *outDir, name string) error {
	if s.file == nil {
		return s.lost
	}
	defer s.file.Close()
	if o == nil {
		return nil
	}
	return errors.Join(s.log.Flush(), o.place(s.file, name))
}

// open makes the command's end of the pipe, and starts to read ours.
func (s *stream) open() (theirs *os.File, err error) {
	if s.pipe, theirs, err = os.Pipe(); err != nil {
		return nil, err
	}
	s.done = make(chan struct{})
	go s.read()
	return theirs, nil
}

var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// read ends at the pipe's end, or soon after finish has set a deadline.
func (s *stream) read() {
	defer close(s.done)
	s.begin()
	held := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(held)
	buf := held[:]
	for {
		n, err := s.pipe.Read(buf)
		s.take(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.rest(buf)
		}
		if err != nil {
			return
		}
	}
}

// rest takes what is in the pipe now and no more: somebody may go on writing.
func (s *stream) rest(buf []byte) {
	rc, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		left, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for left > 0 {
			n, err := unix.Read(int(fd), buf[:min(left, len(buf))])
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return
			}
			s.take(buf[:n])
			left -= n
		}
	})
}

// abandon is for a pipe that no command got.
func (s *stream) abandon() {
	if s.pipe != nil {
		s.pipe.Close()
		<-s.done
	}
}

// finish returns when everything the command wrote has been taken. Processes that it left
// behind may have the pipe, and write on: they find a reader for as long as we live, and
// nobody keeps what they say.
func (s *stream) finish(alone bool) {
	if alone {
		<-s.done
		s.pipe.Close()
		return
	}
	s.pipe.SetReadDeadline(time.Now())
	<-s.done
	s.pipe.SetReadDeadline(time.Time{})
	go func() {
		io.Copy(io.Discard, s.pipe)
		s.pipe.Close()
	}()
}

// take is of no use to anybody as an error: a disk that is full must not end the command.
func (s *stream) take(b []byte) {
	if len(b) == 0 {
		return
	}
	if s.log != nil {
		s.log.Write(b)
	}
	if s.also != nil {
		s.also.Write(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(len(b))
	s.end = append(s.end, b...)
	// Twice the size before anything moves, so that each byte moves once on average.
	if len(s.end) > 2*s.most {
		s.end = append(s.end[:0], s.end[len(s.end)-s.most:]...)
	}
}

// last is the end of the stream, for a result.
func (s *stream) last() backend.Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tailOf(s.end, s.most, s.bytes)
}

// tailOf is the end of b, at most most bytes of it, as the tail of a stream of all bytes. A
// character that was cut is left out; what is not UTF-8 reads U+FFFD.
func tailOf(b []byte, most int, all int64) backend.Tail {
	b = b[max(0, len(b)-most):]
	cut := int64(len(b)) < all
	if cut {
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	return backend.Tail{Text: strings.ToValidUTF8(string(b), "\uFFFD"), Bytes: all, Cut: cut}
}

// glimpse is how much of a stream a caller is shown while it goes on, in bytes.
const glimpse = 2 << 10

func (s *stream) glimpse() (string, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := tailOf(s.end, glimpse, s.bytes)
	if _, rest, ok := strings.Cut(t.Text, "\n"); ok && t.Cut {
		t.Text = rest
	}
	return t.Text, s.bytes
}
