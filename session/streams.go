package session

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/runner/jobs"
)

// collector is the Streams of a frontend that has none: text for the command's stdin, and what it writes.
type collector struct {
	stdin     string
	out, errs *stream
	alone     bool // the sandbox ends with the command

	theirs []*os.File
	feed   *os.File // nil: stdin is empty
}

// collect gives r a collector unless it has Streams. If the sandbox is only for this command, the collector may keep
// all output.
func (r *RunOptions) collect(u outputs, alone bool) error {
	if r.Streams != nil {
		return nil
	}
	c := &collector{stdin: r.Stdin, out: newStream(runner.OutputKept), errs: newStream(runner.StderrKept), alone: alone}
	c.out.also, c.errs.also = r.Stdout, r.Stderr
	c.out.shown = min(r.Shown, runner.OutputKept)
	c.out.hide(r.hidden)
	c.errs.hide(r.hidden)
	r.Streams = c
	whole := alone && r.Logs
	if !whole && r.Shown == 0 {
		return nil
	}
	root, err := u.root()
	if whole {
		c.out.dir, c.errs.dir = root, root
	} else {
		c.out.spill = root
	}
	return err
}

func (c *collector) Open(cmd *runner.Command) (err error) {
	defer func() {
		if err != nil {
			c.Abandon()
		}
	}()
	if c.stdin != "" {
		if cmd.Stdin, c.feed, err = os.Pipe(); err != nil {
			return err
		}
		c.theirs = append(c.theirs, cmd.Stdin)
	}
	for s, to := range map[*stream]**os.File{c.out: &cmd.Stdout, c.errs: &cmd.Stderr} {
		if *to, err = s.open(); err != nil {
			return err
		}
		c.theirs = append(c.theirs, *to)
	}
	return nil
}

func (c *collector) release() {
	for _, f := range c.theirs {
		f.Close()
	}
	c.theirs = nil
}

func (c *collector) Abandon() {
	c.release()
	c.feed.Close()
	c.out.abandon()
	c.errs.abandon()
	c.drop()
}

// Carry kills the command if ctx ends first, and then returns the cause.
func (c *collector) Carry(ctx context.Context, p Process, kill func()) (*runner.Result, error) {
	c.release()                      // the command has its own descriptors now
	if feed := c.feed; feed != nil { // Open may replace it, for a further command
		go func() {
			io.WriteString(feed, c.stdin)
			feed.Close()
		}()
	}
	defer context.AfterFunc(ctx, kill)()
	res, err := p.Wait(context.Background())
	if err != nil {
		kill() // or its output might never end
	}
	c.out.finish(c.alone)
	c.errs.finish(c.alone)
	c.feed.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return res, err
}

// place links the kept output into the output directory; with a nil o it is discarded.
func (c *collector) place(o *outDir) error {
	return errors.Join(c.out.place(o, "stdout.log"), c.errs.place(o, "stderr.log"))
}

// silent reports whether the command wrote nothing. It is valid once both streams are finished.
func (c *collector) silent() bool { return c.out.last().Bytes == 0 && c.errs.last().Bytes == 0 }

// drop discards the kept output.
func (c *collector) drop() { c.place(nil) }

// stream receives one output stream of a command. It keeps the end in memory and up to keptMax bytes in an unnamed
// file, and copies it to also.
type stream struct {
	also io.Writer
	dir  string // file system of the file that keeps the text; empty: only the end is kept
	// spill is the file system of the file for a text that becomes longer than shown; empty: there is no file.
	spill string
	shown int    // 0: any length
	head  []byte // of a text that is longer
	file  *os.File
	log   *jobs.Log
	lost  error // why there is no file
	// blank receives the text, and passes it on without the values of credentials; nil: it has none.
	blank *redact.Writer

	mu  sync.Mutex
	end Last

	pipe *os.File // this program's end
	done chan struct{}
}

// hide blanks values in what is kept and copied. No length changes.
func (s *stream) hide(values *redact.Values) {
	if values != nil {
		s.blank = values.Writer(taker{s})
	}
}

// taker passes blanked text on.
type taker struct{ *stream }

func (t taker) Write(b []byte) (int, error) {
	t.keepText(b)
	return len(b), nil
}

func newStream(most int) *stream { return &stream{end: Last{text.Last{Most: most}}} }

// keptMax bounds the file of a stream, in bytes: a command that writes for two days must not fill the host's
// disk. The end of the stream is kept.
const keptMax = 8 << 30

// begin creates the file. The reading goroutine calls it, because a file system may be slow and the command is
// being started meanwhile.
func (s *stream) begin() {
	if s.dir != "" && s.file == nil {
		s.keep(s.dir, keptMax)
	}
}

func (s *stream) keep(dir string, most int64) {
	if s.file, s.lost = nameless(dir); s.lost == nil {
		s.log = jobs.NewLog(s.file, most)
	}
}

// lengthen is called with the text's next bytes before they are taken. Once the text is longer than shown, it keeps the
// head, and writes the text so far to a file if it has no file yet. So far, end has all of it.
func (s *stream) lengthen(b []byte) {
	if s.shown == 0 || s.long() || s.end.Bytes+int64(len(b)) <= int64(s.shown) {
		return
	}
	s.mu.Lock()
	so := s.end.End(int(s.end.Bytes))
	s.head = append([]byte{}, so[:min(len(so), s.shown/2)]...)
	s.head = append(s.head, b[:min(len(b), s.shown/2-len(s.head))]...)
	s.mu.Unlock()
	if s.spill == "" || s.file != nil {
		return
	}
	if s.keep(s.spill, runner.JobKept); s.log != nil {
		s.log.Write(so)
	}
}

// long reports whether the text is longer than shown.
func (s *stream) long() bool { return s.head != nil }

// place links the file as name into o, or discards it if o is nil. It is called once the stream is finished or
// abandoned.
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

// open creates the pipe, starts to read it, and returns the command's end.
func (s *stream) open() (theirs *os.File, err error) {
	if s.pipe, theirs, err = os.Pipe(); err != nil {
		return nil, err
	}
	s.done = make(chan struct{})
	go s.read()
	return theirs, nil
}

var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// read returns at the end of the pipe, or soon after finish has set a deadline.
func (s *stream) read() {
	defer close(s.done)
	defer func() {
		if s.blank != nil {
			s.blank.Close() // what may have been the begin of a value
		}
	}()
	s.begin()
	held := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(held)
	buf := held[:]
	from := fsutil.Rest(s.pipe) // background processes may keep writing
	for {
		n, err := from.Read(buf)
		s.take(buf[:n])
		if err != nil {
			return
		}
	}
}

// abandon closes a pipe that was never given to a command.
func (s *stream) abandon() {
	if s.pipe != nil {
		s.pipe.Close()
		<-s.done
	}
}

// finish returns once everything that the command wrote has been received. If alone is false, background
// processes may still hold the pipe and write. Their output is read and discarded for as long as this process
// lives.
func (s *stream) finish(alone bool) {
	if alone {
		<-s.done
		s.pipe.Close()
		return
	}
	pipe := s.pipe // open may replace it, for a further command
	pipe.SetReadDeadline(time.Now())
	<-s.done
	pipe.SetReadDeadline(time.Time{})
	go func() {
		io.Copy(io.Discard, pipe)
		pipe.Close()
	}()
}

// take receives b. It ignores write errors: a full disk must not end the command.
func (s *stream) take(b []byte) {
	switch {
	case len(b) == 0:
	case s.blank != nil:
		s.blank.Write(b)
	default:
		s.keepText(b)
	}
}

func (s *stream) keepText(b []byte) {
	s.lengthen(b)
	if s.log != nil {
		s.log.Write(b)
	}
	if s.also != nil {
		s.also.Write(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end.Write(b)
}

// last returns the end of the stream, for a result.
func (s *stream) last() Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.end.Tail(s.end.Most)
	t.Head = strings.ToValidUTF8(string(s.head), "")
	return t
}

// glimpse is how many bytes of a running stream a caller is shown.
const glimpse = 2 << 10

func (s *stream) glimpse() Tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.end.Tail(glimpse)
	if _, rest, ok := strings.Cut(t.Text, "\n"); ok && t.Cut {
		t.Text = rest
	}
	return t
}

// Last is a writer that keeps the last Most bytes.
type Last struct{ text.Last }

// Tail returns the last most bytes as text.
func (l *Last) Tail(most int) Tail { return tailOf(l.End(most), most, l.Bytes) }

// Tail is the last part of a stream.
type Tail struct {
	Text  string // valid UTF-8
	Bytes int64  // of the whole stream
	Cut   bool   // Text is not the whole stream
	Head  string // the first part of a stream that is longer than RunOptions.Shown; may be empty
	File  string // file of the host with the whole of such a stream; empty: none
}

// tailOf returns the last most bytes of b, the end of a stream of all bytes. It replaces invalid UTF-8 by U+FFFD.
func tailOf(b []byte, most int, all int64) Tail {
	cut := int64(min(len(b), most)) < all
	return Tail{Text: strings.ToValidUTF8(string(text.EndOf(b, most, all)), "\uFFFD"), Bytes: all, Cut: cut}
}
