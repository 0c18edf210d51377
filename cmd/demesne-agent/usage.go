package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"demesne/runner"
)

// usageEvery is how often the records of requests are read. A budget ends a run within this time and the end of its
// sandbox.
const usageEvery = 50 * time.Millisecond

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
