package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"demesne/images"
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
		{hinted(ipc.ErrTooLong, "the caller's"), "the caller's"},
		{errors.New("any other"), ""},
	} {
		if got := hintOf(fmt.Errorf("run: %w", c.err)); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
