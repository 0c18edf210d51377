package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"demesne/agents"
	"demesne/runner"
)

// usageEvery is how often the records of requests are read. A budget ends a run within this time and the end of its
// sandbox.
const usageEvery = 50 * time.Millisecond

// requests are those of one agent to its model. Its methods are safe for concurrent use.
type requests struct {
	meter *agents.Meter

	mu     sync.Mutex
	files  []*records
	status int // of the response to the latest one
}

// watch adds the file with the records of a route.
func (r *requests) watch(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, &records{path: path})
}

// read counts new records. It returns what they cost, how many requests had an answer, and whether there were any.
func (r *requests) read() (cost float64, turns int, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.meter.Cost()
	for _, f := range r.files {
		f.read(func(rec runner.UsageRecord) {
			r.meter.Add(rec)
			r.status, some = rec.Status, true
			if rec.Status < http.StatusBadRequest {
				turns++
			}
		})
	}
	return r.meter.Cost() - before, turns, some
}

// refused reports whether the server refused the credential of the latest request.
func (r *requests) refused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status == http.StatusUnauthorized
}

// records reads the usage records of one route, which the proxy appends to a file.
type records struct {
	path string
	at   int64
	rest []byte // an unfinished line
}

// read calls add with each new record.
func (r *records) read(add func(runner.UsageRecord)) {
	f, err := os.Open(r.path)
	if err != nil {
		return // there was no request yet
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() <= r.at {
		return
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, r.at, 1<<62-r.at))
	r.at += int64(len(b))
	r.rest = append(r.rest, b...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return
		}
		r.rest = rest
		var rec runner.UsageRecord
		if json.Unmarshal(line, &rec) == nil {
			add(rec)
		}
	}
}
