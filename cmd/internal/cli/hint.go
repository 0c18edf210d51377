package cli

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

// Hinted adds to err a line that the user can type.
func Hinted(err error, format string, a ...any) error {
	return &hinted{err, fmt.Sprintf(format, a...)}
}

// HintOf returns the hint of err, or "".
func HintOf(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}
