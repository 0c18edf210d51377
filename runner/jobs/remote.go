package jobs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
)

// Remote is a Place whose machines do not see the directory of jobs. The process of a job gets [Process.Request] and calls
// [AttendRemote]. Its stdout has the output and the result, which this side writes into the job's directory.
type Remote interface {
	Place
	// Output copies the stdout of a job's process, from its beginning. With follow it returns when the process has ended or
	// cannot start, and otherwise at the present end. Of a list it copies the stdout of all processes, whole lines of one at a
	// time; with follow it returns only when ctx ends. The id may name an item, whose process it then copies.
	//
	// Cancel also removes what the engine keeps about a job that has ended. It takes the id of an item too.
	Output(ctx context.Context, id string, follow bool, to io.Writer) error
}

// RemoteWord is in place of the id of the job of a remote process. The request of the job follows.
const RemoteWord = "remote"

// The stdout of a remote process has lines, so that a person can read an engine's log too. Each has a kind:
//
//	@JSON            the start of an attempt
//	oOFFSET|TEXT     a line of the command's stdout, and e… of its stderr; OFFSET is its place in the stream
//	oOFFSET+TEXT     the same without a newline at its end
//	=JSON            the result
//
// Each line of an item of a list begins with its number and a slash. Any other line is the process's own. An engine may discard the oldest lines; offsets show how much is lost.
const (
	lineBegin  = '@'
	lineResult = '='
	lineOut    = 'o'
	lineErr    = 'e'
)

const (
	maxPiece      = 8 << 10 // bytes of output on a line: less than the lines that engines split
	maxRemoteLine = 4 << 20 // bytes of any line
)

// attempt is the start of a remote process.
type attempt struct {
	Attempt string    `json:"attempt"` // random: an engine may start a process again, whose output replaces the first one's
	Started time.Time `json:"started"`
	Node    string    `json:"node,omitempty"`
}

// AttendRemote is [Store.Attend] for a process that does not see the directory of jobs. It returns the exit code of the process.
func AttendRemote(ctx context.Context, what json.RawMessage, to io.Writer, run Run) (int, error) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	return (&lines{to: to}).attend(ctx, "", what, run)
}

// Names of files in the directory of a list on another machine. A number follows each: of the part of the list, and of the
// item that was cancelled.
const (
	ListPart     = "items."
	ListCancel   = "cancel."
	maxItemsLine = 1 << 20
)

// AttendRemoteShare is [AttendRemote] for a share of the list in a directory. node is the name of the machine. Its process runs again
// what an earlier one did, because it does not see the results.
func AttendRemoteShare(ctx context.Context, dir, node string, of Share, what json.RawMessage, to io.Writer, run func(Item) Run) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	var parts []io.Reader
	for n := 0; ; n++ {
		f, err := os.Open(filepath.Join(dir, ListPart+strconv.Itoa(n)))
		if n > 0 && errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		defer f.Close()
		parts = append(parts, f)
	}
	list := bufio.NewScanner(io.MultiReader(parts...))
	list.Buffer(nil, maxItemsLine)
	list.Split(splitItems)
	for n := 1; list.Scan(); n++ {
		if (n-1)%of.Of != of.First {
			continue
		}
		w := &lines{to: to, item: strconv.Itoa(n) + "/"}
		ctx, done := untilCancelled(ctx, func(by *runner.Frontend) error {
			b, err := os.ReadFile(filepath.Join(dir, ListCancel+strconv.Itoa(n))) // may be a symbolic link of the engine
			if err == nil {
				err = json.Unmarshal(b, by)
			}
			return err
		})
		_, err := w.attend(ctx, node, what, run(Item{n, list.Text()}))
		done()
		if err != nil {
			return err
		}
	}
	return list.Err()
}

// splitItems splits a list, each of whose items ends with a newline.
func splitItems(b []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1, b[:i], nil
	}
	return 0, nil, nil
}

// attend runs a command, and returns the exit code of a process that does nothing else.
func (w *lines) attend(ctx context.Context, node string, what json.RawMessage, run Run) (int, error) {
	if err := w.record(lineBegin, attempt{rand.Text(), time.Now(), node}); err != nil {
		return 0, err
	}
	out, errs := &lineStream{w: w, kind: lineOut}, &lineStream{w: w, kind: lineErr}
	res, err := run(ctx, what, out, errs)
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, errCancelled) {
		return 0, errors.New("the engine ended the process")
	}
	e := ended{Ended: time.Now(), Result: res, Stdout: out.at, Stderr: errs.at}
	if e.Status, e.Message = Outcome(res, err); cause != nil {
		e.Status, e.Message = Cancelled, cause.Error()
	}
	code := 125
	if err == nil {
		code = res.ExitCode
		res.Out, res.EgressLog = "", "" // paths of that machine
	}
	return code, w.record(lineResult, e)
}

// lines writes lines of one process.
type lines struct {
	mu   sync.Mutex
	to   io.Writer
	item string // the number of an item, and a slash
}

func (w *lines) record(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = fmt.Fprintf(w.to, "%s%c%s\n", w.item, kind, b)
	return err
}

// lineStream writes one stream as lines.
type lineStream struct {
	w    *lines
	kind byte
	at   int64
}

func (s *lineStream) Write(b []byte) (int, error) {
	var buf []byte
	for rest := b; len(rest) > 0; {
		n, end := min(len(rest), maxPiece), byte('+')
		piece := rest[:n]
		if i := bytes.IndexByte(piece, '\n'); i >= 0 {
			piece, n, end = piece[:i], i+1, '|'
		}
		buf = strconv.AppendInt(append(append(buf, s.w.item...), s.kind), s.at, 10)
		buf = append(append(append(buf, end), piece...), '\n')
		s.at, rest = s.at+int64(n), rest[n:]
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if _, err := s.w.to.Write(buf); err != nil {
		return 0, err
	}
	return len(b), nil
}

// collector writes the lines of a remote process into the directory of its job. Several may do the same at once: a line has
// its place.
type collector struct {
	dir       string
	out, errs *Log
	lost      int64 // bytes that the engine discarded
	words     bool  // the process's own first line is in the log
	rest      []byte
	result    *ended
	failed    error              // of writing
	most      int                // items of the job's list
	items     map[int]*collector // nil for one with a result
	item      int                // the only one that is wanted, or 0
	enough    func()             // called once nothing more is wanted
}

func newCollector(dir string) (*collector, error) {
	out, err1 := openLog(filepath.Join(dir, "stdout.log"), 0, runner.JobKept)
	errs, err2 := openLog(filepath.Join(dir, "stderr.log"), 0, runner.JobKept)
	return &collector{dir: dir, out: out, errs: errs, enough: func() {}}, errors.Join(err1, err2)
}

// Write takes a part of the process's stdout.
func (c *collector) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte{'\n'})
		if !ok {
			break
		}
		if c.failed = c.line(line); c.failed != nil {
			return 0, c.failed
		}
		c.rest = rest
		if c.complete() {
			c.enough()
		}
	}
	if len(c.rest) > maxRemoteLine {
		return 0, fmt.Errorf("a line of the process has more than %d bytes", maxRemoteLine)
	}
	return len(b), nil
}

// complete reports whether the result of a job without a list, or of the wanted item, is known.
func (c *collector) complete() bool {
	if c.most == 0 {
		return c.result != nil
	}
	one, known := c.items[c.item]
	return known && one == nil
}

func (c *collector) line(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if number, rest, ok := bytes.Cut(b, []byte{'/'}); ok && c.most > 0 && '0' < b[0] && b[0] <= '9' {
		if n, err := strconv.Atoi(string(number)); err == nil && n <= c.most {
			return c.itemLine(n, rest)
		}
	}
	kind, rest := b[0], b[1:]
	switch kind {
	case lineBegin:
		var a attempt
		if json.Unmarshal(rest, &a) == nil && a.Attempt != "" {
			return c.begin(a)
		}
	case lineResult:
		var e ended
		if json.Unmarshal(rest, &e) == nil && e.Status.Over() && (e.Status != Succeeded || e.Result != nil) {
			if e.Message = text.SafeLine(e.Message); e.Result != nil {
				e.Result.Detail = text.SafeLine(e.Result.Detail)
			}
			c.result = &e
			return nil
		}
	case lineOut, lineErr:
		if at, piece, ok := parsePiece(rest); ok {
			l := c.out
			if kind == lineErr {
				l = c.errs
			}
			c.lost += max(at-l.all, 0)
			l.all = at
			l.Write(piece)
			return nil
		}
	}
	if c.words {
		return nil
	}
	c.words = true
	return fsutil.WriteFile(filepath.Join(c.dir, "log"), []byte(text.SafeLine(string(b[:min(len(b), 4096)]))+"\n"), 0o600)
}

// itemLine takes a line of an item. The first result of an item is its only one.
func (c *collector) itemLine(n int, line []byte) (err error) {
	one, known := c.items[n]
	if !known {
		dir := filepath.Join(c.dir, strconv.Itoa(n))
		if !fsutil.Exists(filepath.Join(dir, "result.json")) {
			if err = os.Mkdir(dir, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				one, err = newCollector(dir)
			}
		}
		if c.items[n] = one; err != nil {
			return err
		}
	}
	if one == nil {
		return nil
	}
	if err = one.line(line); err == nil && one.result != nil {
		c.items[n], err = nil, one.close()
	}
	return err
}

// begin discards the output of an earlier attempt.
func (c *collector) begin(a attempt) error {
	path := filepath.Join(c.dir, "attempt")
	last, err := os.ReadFile(path)
	switch {
	case err == nil && string(last) == a.Attempt:
		return nil
	case err == nil:
		err = errors.Join(c.out.f.Truncate(0), c.errs.f.Truncate(0))
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	started, _ := json.Marshal(a.Started)
	if a.Node != "" {
		node, _ := json.Marshal(text.SafeLine(a.Node))
		err = errors.Join(err, fsutil.WriteFile(filepath.Join(c.dir, "node"), node, 0o600))
	}
	return errors.Join(err, fsutil.WriteFile(path, []byte(a.Attempt), 0o600), fsutil.WriteFile(filepath.Join(c.dir, "started"), started, 0o600))
}

// parsePiece parses OFFSET|TEXT or OFFSET+TEXT.
func parsePiece(b []byte) (at int64, piece []byte, ok bool) {
	i := bytes.IndexAny(b[:min(len(b), 20)], "|+")
	if i < 1 {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 50)
	if err != nil {
		return 0, nil, false
	}
	at = int64(n)
	piece = b[i+1:]
	if b[i] == '|' {
		piece = append(piece[:len(piece):len(piece)], '\n')
	}
	return at, piece, true
}

// close writes the result if the process has one.
func (c *collector) close() error {
	for _, l := range []*Log{c.out, c.errs} {
		l.f.Close()
	}
	for _, one := range c.items {
		if one != nil {
			one.close()
		}
	}
	if c.result == nil {
		return nil
	}
	e := *c.result
	if e.Message == "" && c.lost > 0 {
		e.Message = fmt.Sprintf("%d bytes of output are lost: the engine had discarded them", c.lost)
	}
	for _, l := range []*Log{c.out, c.errs} {
		if err := l.Lost(); err != nil && e.Message == "" {
			e.Message = err.Error()
		}
	}
	if err := writeResult(c.dir, e); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// collect copies the output of a remote job into its directory, and the result once there is one, which the engine then may forget.
func (s *Store) collect(ctx context.Context, r Remote, id string, follow bool) error {
	list, n, _ := itemOf(id)
	l, err := s.read(list)
	if err != nil {
		return err
	}
	c, err := newCollector(filepath.Join(s.dir, list))
	if err != nil {
		return err
	}
	until, enough := context.WithCancel(ctx)
	defer enough()
	c.most, c.items, c.item, c.enough = l.Items, map[int]*collector{}, n, enough
	switch err = r.Output(until, id, follow, c); { // an engine may notice the end of a process late
	case c.failed != nil: // the engine's error is that nothing reads its output
		err = c.failed
	case c.complete():
		err = nil
	}
	if err := errors.Join(err, c.close()); err != nil || c.result == nil {
		return err
	}
	r.Cancel(context.WithoutCancel(ctx), id) // after a failure the engine forgets it later
	return nil
}

// collecting collects the output of a job until it has ended or stop is called. done is closed at the end. It collects nothing of other jobs.
func (s *Store) collecting(ctx context.Context, id string) (done chan struct{}, stop func()) {
	r := s.remote(id)
	if r == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done = make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.collect(ctx, r, id, true) // an error of the engine is in what Get returns too
			if j, err := s.Get(id); err != nil || j.Status.Over() {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return done, func() { cancel(); <-done }
}

// remote returns the Remote of a job without a result, or nil.
func (s *Store) remote(id string) Remote {
	j, err := s.read(id)
	if err != nil || j.On == "" || j.Status.Over() {
		return nil
	}
	place, _ := s.place(j.On)
	r, _ := place.(Remote)
	return r
}

// Fetch copies the present output of a job on another machine into its directory, where that is needed.
func (s *Store) Fetch(ctx context.Context, id string) error {
	if r := s.remote(id); r != nil {
		return s.collect(ctx, r, id, false)
	}
	return nil
}
