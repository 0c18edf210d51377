package runs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"time"
)

// replayed is how many events of a run are kept for clients.
const replayed = 200

// feed has the newest events of a run, and reads its log while clients or Store.Observe want them. Clients share it, so
// that an idle one costs only a goroutine.
type feed struct {
	mu   sync.Mutex
	last int // number of the newest event; the first is 1
	ring []line
	over bool
	news chan struct{} // closed when there is more

	seen int64 // bytes of the log that an earlier server has observed, or unobserved
}

// unobserved is in place of the bytes for a run that had ended before the feed began.
const unobserved = math.MaxInt64

// line is an event as it is sent.
type line struct {
	number int
	kind   Kind
	data   json.RawMessage
}

// after returns the kept events behind a number, whether the run has ended, and a channel that is closed when there is
// more. A client that is too slow misses events; their numbers show that.
func (f *feed) after(number int) (lines []line, over bool, news <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range f.ring {
		if l.number > number {
			return append([]line(nil), f.ring[i:]...), f.over, f.news
		}
	}
	return nil, f.over, f.news
}

// whole waits until the log of a run that has ended is read.
func (f *feed) whole(ctx context.Context) {
	for {
		_, over, news := f.after(math.MaxInt)
		if over {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// add adds events.
func (f *feed) add(lines []line, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range lines {
		f.last++
		l.number = f.last
		f.ring = append(f.ring, l)
	}
	if extra := len(f.ring) - replayed; extra > 0 {
		f.ring = append([]line(nil), f.ring[extra:]...)
	}
	f.over = f.over || over
	close(f.news)
	f.news = make(chan struct{})
}

// feed returns the feed of a run, and begins to read its log. Events in the first seen bytes are not observed.
func (s *Store) feed(job string, r *Request, seen int64) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.feeds[job]; f != nil {
		return f
	}
	f := &feed{news: make(chan struct{}), seen: seen}
	s.feeds[job] = f
	go s.read(job, r, f)
	return f
}

// forget drops a feed once its run has ended. Clients that have it get the rest.
func (s *Store) forget(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, job)
}

// Times between two looks at a log.
const soon, later = 5 * time.Millisecond, 250 * time.Millisecond

// read reads the log of a run until its end. The state is read before the log, so that nothing is missed.
func (s *Store) read(job string, r *Request, f *feed) {
	defer s.forget(job)
	at := int64(0)
	for pause := soon; ; pause = min(2*pause, later) {
		j, err := s.jobs.Get(job)
		n, over := s.readOn(job, at, r, f)
		if at += n; n > 0 {
			pause = soon
		}
		switch {
		case over:
			return
		case err != nil: // it was removed
			f.add(nil, true)
			return
		case j.Status.Over() && n == 0:
			e := lost(j)
			data, _ := json.Marshal(e.Data)
			f.add([]line{{kind: e.Kind, data: data}}, true)
			if f.seen != unobserved {
				s.observe(r, e)
			}
			return
		}
		time.Sleep(pause)
	}
}

// readOn reads what the log has from an offset on. It returns the length of it, and whether the last event was there.
func (s *Store) readOn(job string, at int64, r *Request, f *feed) (n int64, over bool) {
	var lines []line
	path, err := s.jobs.File(job, "stdout")
	if err != nil {
		return 0, false
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	end := at
	n, _ = readLines(io.NewSectionReader(file, at, 2*maxLog), func(text []byte) {
		end += int64(len(text)) + 1
		var e struct {
			Kind Kind            `json:"event"`
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(text, &e) != nil {
			return
		}
		over = over || e.Kind.over()
		if lines = append(lines, line{kind: e.Kind, data: e.Data}); len(lines) > 2*replayed {
			lines = append(lines[:0], lines[len(lines)-replayed:]...)
			f.skip(replayed + 1)
		}
		if s.Observe != nil && end > f.seen {
			var d Data
			if json.Unmarshal(e.Data, &d) == nil {
				s.observe(r, Event{e.Kind, d})
			}
		}
	})
	if len(lines) > 0 {
		f.add(lines, over)
	}
	return n, over
}

// skip counts events that are not kept.
func (f *feed) skip(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last += n
}

func (s *Store) observe(r *Request, e Event) {
	if s.Observe != nil {
		s.Observe(*r, e)
	}
}

// readLines calls f with each whole line, and returns the length of them all.
func readLines(from io.Reader, f func(line []byte)) (n int64, err error) {
	r := bufio.NewReaderSize(from, 64<<10)
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > maxLine {
				return n, errors.New("a line is too long")
			}
			continue
		case errors.Is(err, io.EOF): // the rest is still to come
			return n, nil
		case err != nil:
			return n, err
		}
		whole := part
		if long != nil {
			whole, long = append(long, part...), nil
		}
		n += int64(len(whole))
		f(bytes.TrimSuffix(whole, []byte("\n")))
	}
}
