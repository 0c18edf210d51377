package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// longestRecord bounds a line of the file that the proxy writes.
const longestRecord = 64 << 10

// followEvery is the interval of reads if the kernel cannot report writes.
const followEvery = 50 * time.Millisecond

// FollowUsage calls each with every record of f, the file of [runner.Route.Record], as it is written. After ctx is
// done it reads the rest, and returns. A line that is no record counts as a malformed one.
func FollowUsage(ctx context.Context, f *os.File, each func(runner.UsageRecord)) error {
	wake, stop := watch(f)
	defer stop()
	r := &records{f: f, each: each}
	for {
		over := ctx.Err() != nil
		if err := r.read(); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
		case <-wake:
		}
	}
}

// watch returns a channel that receives after writes to f.
func watch(f *os.File) (<-chan time.Time, func()) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return ticks()
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := syscall.InotifyAddWatch(fd, fsutil.FDPath(int(f.Fd())), syscall.IN_MODIFY); err != nil {
		events.Close()
		return ticks()
	}
	wake, ended := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			if _, err := events.Read(buf); err != nil {
				return
			}
			select {
			case wake <- time.Time{}:
			default:
			}
		}
	}()
	return wake, func() {
		events.Close()
		<-ended
	}
}

func ticks() (<-chan time.Time, func()) {
	t := time.NewTicker(followEvery)
	return t.C, t.Stop
}

// records reads whole lines of a growing file.
type records struct {
	f    *os.File
	at   int64
	line []byte // an unfinished one
	skip bool   // the rest of it: it is too long
	each func(runner.UsageRecord)
}

// read reads to the present end of the file.
func (r *records) read() error {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.f.ReadAt(buf, r.at)
		r.at += int64(n)
		r.add(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *records) add(p []byte) {
	for len(p) > 0 {
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		p = rest
		if r.skip = r.skip || len(r.line)+len(part) > longestRecord; r.skip {
			r.line = nil
		} else {
			r.line = append(r.line, part...)
		}
		if whole {
			r.parse()
			r.line, r.skip = r.line[:0], false
		}
	}
}

func (r *records) parse() {
	var record runner.UsageRecord
	if r.skip || json.Unmarshal(r.line, &record) != nil {
		record = runner.UsageRecord{Malformed: true, Time: time.Now()}
	}
	r.each(record)
}
