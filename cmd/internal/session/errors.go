package session

import (
	"errors"
	"io/fs"
	"syscall"
)

// hinted is an error with a hint that the user can type.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint returns the hint.
func (h *hinted) Hint() string { return h.hint }

// WithHint adds a hint to an error: one line that the user can type. The error then has a method Hint that returns it.
func WithHint(err error, hint string) error { return &hinted{err, hint} }

// reason strips the operation and the path off a file system error: the message has the path as the user typed it.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
