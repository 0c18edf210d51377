package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// List are the items of a job that does the same for each of them. The zero value makes an ordinary job.
//
// Item N of job J is J/N, from 1 on. It is a job for [Store.Get] and the methods built on it, and its directory J/N has the files of
// one: node, started, stdout.log, stderr.log, cancel and result.json. It has neither a process, a lock nor a request of its
// own: what remains undone when J ends has died, or was cancelled with J.
type List struct {
	Items    []string // without newlines
	Parallel int      // items at once; 0: on a cluster, as many as it allows
}

// Item is one item. N is 0 for a job without a list.
type Item struct {
	N    int
	Text string
}

// Share is a part of a list: the items First+1, First+1+Of, and so on.
type Share struct{ First, Of int }

const itemsFile = "items"

func (l List) write(dir string) error {
	if len(l.Items) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, itemsFile), []byte(strings.Join(l.Items, "\n")), 0o600)
}

// itemOf splits the id of an item.
func itemOf(id string) (list string, n int, ok bool) {
	list, number, ok := strings.Cut(id, "/")
	n, err := strconv.Atoi(number)
	return list, n, ok && err == nil && n > 0 && strconv.Itoa(n) == number
}

// ItemID returns the id of an item.
func ItemID(list string, n int) string { return fmt.Sprintf("%s/%d", list, n) }

// Died reports whether the command had no chance to end by itself: its machine, its sandbox or its memory ended.
func (j *Job) Died() bool {
	return j.Status == Failed || j.Result != nil && (j.Result.Reason == runner.OOM || j.Result.Reason == runner.Lost)
}

// readItem returns an item of a list, which was read before.
func (s *Store) readItem(l *Job, n int) (*Job, error) {
	if n > l.Items {
		return nil, ErrUnknown
	}
	j := &Job{ID: ItemID(l.ID, n), Status: Queued, Request: l.Request, Frontend: l.Frontend, On: l.On, Created: l.Created}
	dir := filepath.Join(s.dir, j.ID)
	done, err := j.fill(dir)
	if err == nil && !done && l.Status.Over() {
		j.Status, j.Ended, j.Message = Failed, l.Ended, "it has no result: "+l.Message
		if l.Status == Cancelled {
			j.Status, j.Message = Cancelled, l.Message
		}
	}
	return j, err
}

// Items returns the items of a job with a list.
func (s *Store) Items(id string) ([]*Job, error) {
	l, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	all := make([]*Job, l.Items)
	for i := range all {
		if all[i], err = s.readItem(l, i+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attendItems runs the items of a share that have no result yet, several at a time. An error ends the share.
func (s *Store) attendItems(ctx context.Context, id string, r request, share Share, keep int64, run func(Item) Run) error {
	text, err := os.ReadFile(filepath.Join(s.dir, id, itemsFile))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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
		if ctx.Err() != nil {
			break
		}
		item := Item{n, line}
		all.Go(func() {
			defer func() { <-free }()
			if err := s.attendItem(ctx, ItemID(id, item.N), keep, r.Request, run(item)); err != nil {
				once.Do(func() { first = fmt.Errorf("item %d: %w", item.N, err); cancel(first) })
			}
		})
	}
	all.Wait()
	return first
}

// cancelPause is how often a running item looks whether it was cancelled. A file works on every file system that machines share.
const cancelPause = 500 * time.Millisecond

func (s *Store) attendItem(ctx context.Context, id string, keep int64, what json.RawMessage, run Run) error {
	dir := filepath.Join(s.dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if fsutil.Exists(filepath.Join(dir, "result.json")) {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	look := time.NewTicker(cancelPause)
	defer look.Stop()
	go func() {
		var by runner.Frontend
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			if readJSON(filepath.Join(dir, cancelFile), &by) == nil {
				cancel(cancelledBy(by))
			}
		}
	}()
	err := s.attempt(ctx, dir, keep, what, run)
	if errors.Is(err, os.ErrExist) { // it was cancelled just before its start
		return nil
	}
	return err
}

// cancelItem ends an item. One that has not begun gets its result here.
func (s *Store) cancelItem(ctx context.Context, j *Job) (*Job, error) {
	dir := filepath.Join(s.dir, j.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	if err := writeJSON(dir, cancelFile, s.Frontend); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cancel job %q: %w", j.ID, err)
	}
	if j.Started.IsZero() {
		return s.bury(j, dir, Cancelled, cancelledBy(s.Frontend).Error())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.waitPlaced(ctx, j.ID)
}

// tally says how the items of a list ended. why is the reason of those without a result, which have died.
func (s *Store) tally(l *Job, why string) (res *runner.Result, done bool) {
	var good, bad, died, cancelled, left int
	running := *l
	running.Status = Running // so that an item without a result is not over
	for n := range l.Items {
		switch j, err := s.readItem(&running, n+1); {
		case err != nil || !j.Status.Over():
			left++
		case j.Status == Cancelled:
			cancelled++
		case j.Died():
			died++
		case j.Result.ExitCode != 0:
			bad++
		default:
			good++
		}
	}
	res = &runner.Result{Reason: runner.Exited, Detail: fmt.Sprintf("%d items: %d succeeded", l.Items, good)}
	for _, part := range []struct {
		n, code int
		word    string
	}{{bad, 1, "failed"}, {died + left, 125, "died"}, {cancelled, 125, "were cancelled"}} {
		if part.n > 0 {
			res.Detail += fmt.Sprintf(", %d %s", part.n, part.word)
			res.ExitCode = part.code
		}
	}
	if left > 0 && why != "" {
		res.Detail += " (" + why + ")"
	}
	return res, left == 0
}

// followItems is Follow for a job with a list: the items one after the other.
func (s *Store) followItems(ctx context.Context, l *Job, most int64, out, errs io.Writer) (*Job, error) {
	asked := time.Now()
	for n := 1; n <= l.Items && ctx.Err() == nil; n++ {
		if _, err := s.follow(ctx, ItemID(l.ID, n), &asked, most, out, errs); err != nil {
			return l, err
		}
	}
	if l.On != "" && ctx.Err() == nil {
		if res, done := s.tally(l, ""); done { // the engine says so later
			return s.buryWith(l, filepath.Join(s.dir, l.ID), Succeeded, res.Detail, res)
		}
	}
	return s.waitOver(ctx, l.ID)
}
