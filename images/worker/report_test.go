package worker

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
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/images/pull"
	"demesne/rootfs/unpack"
)

// TestReporterThrottles checks that progress of a layer is reported ten times a second, and every other event
// each time.
func TestReporterThrottles(t *testing.T) {
	var out bytes.Buffer
	r := newReporter(&out)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			d := oci.DigestOf([]byte{byte(i)})
			for n := range int64(1000) {
				r.send(events.Event{Event: events.Layer, State: events.Pulling, Digest: d, Bytes: n})
			}
			r.send(events.Event{Event: events.Layer, State: events.Pulled, Digest: d})
		})
	}
	wg.Wait()
	counts := map[events.State]int{}
	for line := range strings.Lines(out.String()) {
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		counts[e.State]++
	}
	if counts[events.Pulled] != 4 || counts[events.Pulling] < 4 || counts[events.Pulling] > 400 {
		t.Errorf("%v", counts)
	}
}

// TestFail checks that each failure has its code, one line of text, and a hint if there is a remedy.
func TestFail(t *testing.T) {
	for _, c := range []struct {
		err  error
		code events.Code
		hint bool
	}{
		{fmt.Errorf("x: %w", syscall.ENOSPC), events.CodeNoSpace, true},
		{fmt.Errorf("x\n\x1b[2J: %w", images.ErrCorrupt), events.CodeCorrupt, true},
		{fmt.Errorf("x: %w", unpack.ErrCorrupt), events.CodeCorrupt, true},
		{fmt.Errorf("x: %w", images.ErrNotFound), events.CodeNotFound, true},
		{fmt.Errorf("x: %w", &unpack.RefusedError{Reason: unpack.TooBig}), events.CodeRefused, true},
		{fmt.Errorf("x: %w", &unpack.RefusedError{Reason: unpack.BadMedia}), events.CodeUnsupported, true},
		{fmt.Errorf("x: %w", &archive.InvalidError{Path: "p", Err: syscall.EINVAL}), events.CodeUnsupported, true},
		{fmt.Errorf("x: %w", &pull.Error{Code: events.CodePolicy, Err: syscall.EPERM}), events.CodePolicy, true},
		{fmt.Errorf("x: %w", context.Canceled), events.CodeCanceled, false},
		{usage("x"), events.CodeInvalid, false},
		{syscall.EPERM, events.CodeInternal, false},
	} {
		var out bytes.Buffer
		newReporter(&out).fail(c.err)
		var e events.Event
		if err := json.Unmarshal(out.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if c.code == events.CodeUnsupported && (e.Hint == notArchive) != errors.As(c.err, new(*archive.InvalidError)) {
			t.Errorf("%v: hint %q", c.err, e.Hint)
		}
		if e.Event != events.Error || e.Code != c.code || (e.Hint != "") != c.hint || strings.ContainsAny(e.Text, "\n\x1b") {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}

// TestHidden checks that no event has the password of a private registry, which its answers may repeat.
func TestHidden(t *testing.T) {
	var out bytes.Buffer
	r := newReporter(&out)
	r.hide(images.Login{User: "me", Password: "p/s w+rd"})
	r.send(events.Event{Event: events.Notice, Why: "at registry.test?x=p%2Fs+w%2Brd"})
	r.fail(errors.New("denied: me:p/s w+rd, Basic bWU6cC9zIHcrcmQ="))
	if got := out.String(); strings.Contains(got, "w+rd") || strings.Contains(got, "w%2Brd") || strings.Contains(got, "bWU6") || strings.Count(got, "[hidden]") != 3 {
		t.Error(got)
	}
}
