package text

import (
	"errors"
	"fmt"
)

// hinted is an error with a hint.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }
func (h *hinted) Hint() string  { return h.hint }

// Hinted adds to err a line that the user can type.
func Hinted(err error, format string, a ...any) error {
	return &hinted{err, fmt.Sprintf(format, a...)}
}

// HintOf returns the hint of err, or "". An error of any type with a method Hint has one.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
