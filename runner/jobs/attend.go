package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
)

// Run performs a job's request. It returns early when ctx ends, and its result becomes the job's. out and errs
// receive the command's output.
type Run func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error)

// errCancelled is in the cause with which a cancelled job's context ends. The cause also says whose call cancelled it.
var errCancelled = errors.New("cancelled")

// Attend is the main function of a job's process. It waits for a slot, runs the job and writes the result. keep
// bounds the retained end of each output stream, in bytes.
func (s *Store) Attend(ctx context.Context, id string, keep int64, run Run) error {
	return s.AttendShare(ctx, id, Share{Of: 1}, keep, func(Item) Run { return run })
}

// AttendShare is Attend for a job that may have a list. run returns the function for an item of the share.
func (s *Store) AttendShare(ctx context.Context, id string, share Share, keep int64, run func(Item) Run) error {
	dir, err := s.path(id, "")
	if err != nil {
		return err
	}
	var r request
	if err := readJSON(filepath.Join(dir, "job.json"), &r); err != nil {
		return fmt.Errorf("attend job %q: %w", id, err)
	}
	if r.On != "" {
		var stop func()
		ctx, stop = untilEnded(ctx, dir)
		defer stop()
	}
	items := func(ctx context.Context) error { return s.attendItems(ctx, id, r, share, keep, run) }
	switch {
	case r.On != "" && r.Items > 0:
		err = items(ctx)
	case r.On != "":
		err = s.attempt(ctx, dir, keep, r.Request, run(Item{}))
	case r.Items > 0:
		err = s.attendHere(ctx, id, dir, keep, r.Request, func(ctx context.Context, _ json.RawMessage, _, _ io.Writer) (*runner.Result, error) {
			err := items(ctx)
			res, _ := s.tally(&Job{ID: id, Items: r.Items}, "")
			return res, err
		})
	default:
		err = s.attendHere(ctx, id, dir, keep, r.Request, run(Item{}))
	}
	if err != nil {
		return fmt.Errorf("attend job %q: %w", id, err)
	}
	return nil
}

// attendHere is Attend for a job on this machine, whose process inherited its lock and its place in the queue.
func (s *Store) attendHere(ctx context.Context, id, dir string, keep int64, what json.RawMessage, run Run) error {
	lock := os.NewFile(fdLock, "lock")
	if lock == nil {
		return errors.New("not started by Start")
	}
	defer lock.Close()
	unix.CloseOnExec(fdLock)
	unix.CloseOnExec(fdTurn)
	turn, err := flock.AdoptTurn(s.queue(), queueName, id, os.NewFile(fdTurn, "turn"))
	if err != nil {
		return err
	}
	defer turn.Leave()
	alive, err := os.OpenFile(filepath.Join(dir, "alive"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer alive.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := listen(filepath.Join(dir, "control"), func(by runner.Frontend) { cancel(cancelledBy(by)) }); err != nil {
		return err
	}
	out, err1 := openLog(filepath.Join(dir, "stdout.log"), os.O_EXCL, keep)
	errs, err2 := openLog(filepath.Join(dir, "stderr.log"), os.O_EXCL, keep)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return finish(dir, s.attend(ctx, turn, dir, what, out, errs, run), out, errs)
}

// finish closes the logs and writes the result.
func finish(dir string, e ended, out, errs *Log) error {
	e.Stdout, e.Stderr = out.close(), errs.close()
	for _, l := range []*Log{out, errs} {
		if err := l.Lost(); err != nil {
			e.Message = strings.TrimPrefix(e.Message+"; "+err.Error(), "; ")
		}
	}
	return writeResult(dir, e)
}

func (s *Store) attend(ctx context.Context, turn *flock.Turn, dir string, what json.RawMessage, out, errs io.Writer, run Run) ended {
	slot, err := s.slot(ctx, turn)
	if err == nil {
		defer slot.Close()
		if s.Admit != nil {
			err = s.Admit(what)
		}
	}
	if err == nil {
		err = writeJSON(dir, "started", time.Now())
	}
	turn.Leave()
	var res *runner.Result
	if err == nil {
		res, err = run(ctx, what, out, errs)
	}
	if errors.Is(context.Cause(ctx), errCancelled) {
		why := context.Cause(ctx).Error()
		if res != nil {
			res.Detail = why // which a signal does not say
		}
		return ended{Status: Cancelled, Message: why, Result: res, Ended: time.Now()}
	}
	status, why := Outcome(res, err)
	return ended{Status: status, Message: why, Result: res, Ended: time.Now()} // before the next job gets the slot
}

// Outcome returns the status of a job that ended by itself, and its message. res may be nil if err is not.
func Outcome(res *runner.Result, err error) (Status, string) {
	switch {
	case err != nil:
		return Failed, err.Error()
	case res.Reason == runner.Lost:
		return Failed, res.Detail
	}
	return Succeeded, res.Detail
}

// maxControl is longer than what Cancel writes. A write of so much to a FIFO is atomic.
const maxControl = 128

// listen calls cancelled when a request to cancel arrives through the FIFO: a byte, and the frontend of the caller. The FIFO is
// opened for both directions, so it never reports EOF and opening it does not wait for a writer.
func listen(path string, cancelled func(by runner.Frontend)) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	go func() {
		var b [maxControl]byte
		if n, _ := f.Read(b[:]); n > 0 {
			cancelled(runner.Frontend(b[1:n]))
		}
	}()
	return nil
}

// slot waits for all earlier jobs in the queue, and then for the first free slot. At any time only one process looks
// for a slot.
func (s *Store) slot(ctx context.Context, turn *flock.Turn) (*os.File, error) {
	if err := turn.Wait(ctx); err != nil {
		return nil, err
	}
	for pause := time.Millisecond; ; pause = min(pause*2, 100*time.Millisecond) {
		for n := 0; n < s.Slots; n++ {
			f, err := os.OpenFile(filepath.Join(s.dir, "slots", fmt.Sprint(n)), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return nil, fmt.Errorf("wait for a slot: %w", err)
			}
			if flock.Try(f, flock.Exclusive) == nil {
				return f, nil
			}
			f.Close()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Log keeps the head and the end of a stream in a file. The part between becomes a hole, so offsets in the file, and its size,
// equal the stream's.
type Log struct {
	f    *os.File
	keep int64
	all  int64
	hole int64 // end of the hole, which begins at headKept
	lost int64 // bytes that could not be written
	why  error // of the first of them
}

// NewLog returns a Log that keeps at least the last keep bytes in f, or 2 MiB if keep is less. It may keep up to 1
// MiB more.
func NewLog(f *os.File, keep int64) *Log {
	return &Log{f: f, keep: max(keep, 2*holeStep), hole: headKept}
}

// openLog opens a log. flag is O_EXCL, or O_TRUNC if an earlier process of the job may have left one.
func openLog(path string, flag int, keep int64) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|flag, 0o600)
	return NewLog(f, keep), err
}

// headKept is how many bytes of a stream's head are kept.
const headKept = 64 << 10

// holeStep is the smallest amount that is punched out at once, in bytes.
const holeStep = 1 << 20

// Write never fails, because a full disk must not end the command. Data that could not be written becomes a hole too, and
// [Log.Lost] reports it.
func (l *Log) Write(b []byte) (int, error) {
	if n, err := l.f.WriteAt(b, l.all); err != nil {
		l.lost, l.why = l.lost+int64(len(b)-n), cmp.Or(l.why, err)
	}
	l.all += int64(len(b))
	if over := l.all - l.keep - l.hole; over >= holeStep {
		unix.Fallocate(int(l.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, l.hole, over)
		l.hole += over
	}
	return len(b), nil
}

// Lost returns an error if a part of the stream could not be written.
func (l *Log) Lost() error {
	if l.lost == 0 {
		return nil
	}
	return fmt.Errorf("write %s: %d bytes are lost: %w", filepath.Base(l.f.Name()), l.lost, l.why)
}

// Flush sets the file's size to the stream's. They differ if the disk was full.
func (l *Log) Flush() error { return l.f.Truncate(l.all) }

func (l *Log) close() int64 {
	l.Flush()
	l.f.Close()
	return l.all
}

// attendItems runs the items of a share that have no result yet, several at a time. After an error, such as a full disk, it starts no more.
func (s *Store) attendItems(ctx context.Context, id string, r request, share Share, keep int64, run func(Item) Run) error {
	text, err := os.ReadFile(filepath.Join(s.dir, id, itemsFile))
	if err != nil {
		return err
	}
	starting, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var first error
	var once sync.Once
	free := make(chan struct{}, max(r.Parallel, 1))
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if n++; (n-1)%share.Of != share.First {
			continue
		}
		free <- struct{}{}
		if starting.Err() != nil {
			break
		}
		item := Item{n, line}
		all.Go(func() {
			defer func() { <-free }()
			if err := s.attendItem(ctx, ItemID(id, item.N), keep, r.Request, run(item)); err != nil {
				once.Do(func() { first = fmt.Errorf("item %d: %w", item.N, err); stop() })
			}
		})
	}
	all.Wait()
	return first
}

// cancelPause is how often a running item looks whether it was cancelled. A file works on every file system that machines share.
const cancelPause = 500 * time.Millisecond

// untilCancelled returns a context that ends when read finds the frontend that cancelled an item.
func untilCancelled(ctx context.Context, read func(by *runner.Frontend) error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	look := time.NewTicker(cancelPause)
	go func() {
		defer look.Stop()
		var by runner.Frontend
		for {
			if read(&by) == nil {
				cancel(cancelledBy(by))
			}
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (s *Store) attendItem(ctx context.Context, id string, keep int64, what json.RawMessage, run Run) error {
	dir := filepath.Join(s.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	ctx, stop := untilCancelled(ctx, func(by *runner.Frontend) error { return readJSON(filepath.Join(dir, cancelFile), by) })
	defer stop()
	err := reserve(dir)
	if err == nil || errors.Is(err, os.ErrExist) { // an earlier process may have reserved it
		err = s.attempt(ctx, dir, keep, what, run)
	}
	if errors.Is(err, os.ErrExist) { // it has ended, or was cancelled just before its start
		return nil
	}
	return err
}
