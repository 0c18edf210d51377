package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"demesne/images"
	"demesne/runner/wire"
)

// TestHintOf: what is said about errors that come without a hint of their own.
func TestHintOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string // part of it; "": none
	}{
		{fmt.Errorf("send run: %w", wire.ErrTooLong), "into a file"},
		{&images.UnknownError{Name: "postgres"}, "postgres:latest"},
		{&images.UnknownError{Name: "pyhton", Near: "python"}, ""},
		{wire.Errorf(wire.CodeUnknown, "find sandbox"), "demesne ls"},
		{&wire.Error{Code: wire.CodeUnknown, Hint: "its own"}, "its own"},
		{hinted(wire.ErrTooLong, "the caller's"), "the caller's"},
		{errors.New("any other"), ""},
	} {
		if got := hintOf(fmt.Errorf("run: %w", c.err)); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
