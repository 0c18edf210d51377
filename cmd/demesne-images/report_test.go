package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/pull"
	"demesne/rootfs/unpack"
)

// TestReporterThrottles: how far a layer is, is said ten times a second; all else each time.
func TestReporterThrottles(t *testing.T) {
	var out bytes.Buffer
	r := newReporter(&out)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			d := images.DigestOf([]byte{byte(i)})
			for n := range int64(1000) {
				r.send(images.Event{Event: images.EventLayer, State: images.Pulling, Digest: d, Bytes: n})
			}
			r.send(images.Event{Event: images.EventLayer, State: images.Pulled, Digest: d})
		})
	}
	wg.Wait()
	counts := map[images.State]int{}
	for line := range strings.Lines(out.String()) {
		var e images.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		counts[e.State]++
	}
	if counts[images.Pulled] != 4 || counts[images.Pulling] < 4 || counts[images.Pulling] > 400 {
		t.Errorf("%v", counts)
	}
}

// TestFail: each failure has its code, on one line, and a hint where there is something to do about it.
func TestFail(t *testing.T) {
	for _, c := range []struct {
		err  error
		code images.Code
		hint bool
	}{
		{fmt.Errorf("x: %w", syscall.ENOSPC), images.CodeNoSpace, true},
		{fmt.Errorf("x\n\x1b[2J: %w", images.ErrCorrupt), images.CodeCorrupt, true},
		{fmt.Errorf("x: %w", unpack.ErrCorrupt), images.CodeCorrupt, true},
		{fmt.Errorf("x: %w", images.ErrNotFound), images.CodeNotFound, true},
		{fmt.Errorf("x: %w", &unpack.RefusedError{Reason: unpack.TooBig}), images.CodeRefused, true},
		{fmt.Errorf("x: %w", &unpack.RefusedError{Reason: unpack.BadMedia}), images.CodeUnsupported, true},
		{fmt.Errorf("x: %w", &archive.InvalidError{Path: "p", Err: syscall.EINVAL}), images.CodeUnsupported, true},
		{fmt.Errorf("x: %w", &pull.Error{Code: images.CodePolicy, Err: syscall.EPERM}), images.CodePolicy, true},
		{fmt.Errorf("x: %w", context.Canceled), images.CodeCanceled, false},
		{usage("x"), images.CodeInvalid, false},
		{syscall.EPERM, images.CodeInternal, false},
	} {
		var out bytes.Buffer
		newReporter(&out).fail(c.err)
		var e images.Event
		if err := json.Unmarshal(out.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if c.code == images.CodeUnsupported && (e.Hint == notArchive) != errors.As(c.err, new(*archive.InvalidError)) {
			t.Errorf("%v: hint %q", c.err, e.Hint)
		}
		if e.Event != images.EventError || e.Code != c.code || (e.Hint != "") != c.hint || strings.ContainsAny(e.Text, "\n\x1b") {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}
