package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"demesne/images"
	"demesne/images/events"
	"demesne/internal/text"
	"demesne/runner/ipc"
)

// TestHintOf checks the hints of errors, with and without a hint of their own.
func TestHintOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // part of the hint; empty: no hint
	}{
		{fmt.Errorf("send run: %w", ipc.ErrTooLong), "in a file"},
		{&images.UnknownError{Name: "postgres"}, "postgres:latest"},
		{&images.UnknownError{Name: "pyhton", Near: "python"}, ""},
		{ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox"), "demesne ls"},
		{&ipc.Error{Code: ipc.CodeNoSuchSandbox, Hint: "its own"}, "its own"},
		{text.Hinted(ipc.ErrTooLong, "the caller's"), "the caller's"},
		{errors.New("any other"), ""},
	} {
		if got := hintOf(fmt.Errorf("run: %w", c.err)); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

// TestImageHints checks that each failure has the most specific hint, and that --json has its class.
func TestImageHints(t *testing.T) {
	fail := func(code events.Code, hint string) error {
		return fmt.Errorf("image %q: %w", "x", &events.Failure{Code: code, Text: "text", Hint: hint})
	}
	for _, c := range []struct {
		err  error
		hint string
		code ipc.Code
	}{
		{fail(events.CodeDenied, "their own"), "their own", "denied"},
		{fail(events.CodePlatform, ""), "", "platform"},
		{fmt.Errorf("blob: %w", images.ErrCorrupt), "run demesne images check", ipc.CodeInternal},
		{images.ErrNotFound, "demesne images --all", ipc.CodeInternal},
		{&ipc.Error{Code: ipc.CodeRequirement, Text: "t", Hint: "type this"}, "type this", ipc.CodeRequirement},
		{errors.New("anything"), "", ipc.CodeInternal},
	} {
		e := Wire(c.err)
		if !strings.HasPrefix(e.Hint, c.hint) || c.hint == "" && e.Hint != "" || e.Code != c.code || e.Text != c.err.Error() {
			t.Errorf("%v: %+v, want %q, %s", c.err, e, c.hint, c.code)
		}
		if ExitCode(c.err) != ExitFailed {
			t.Errorf("%v: exit %d", c.err, ExitCode(c.err))
		}
	}
}
