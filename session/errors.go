package session

import (
	"errors"
	"fmt"
)

// Kinds of errors, so that a frontend can choose its answer: see [Kind].
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid request")
	ErrBusy     = errors.New("no room for another sandbox")
	// ErrQuota means that the caller, or the user, has as many sandboxes as allowed: there is room once one is removed.
	ErrQuota error = busy("too many sandboxes")
	// ErrQueueFull means that too many commands wait: the caller should try again later.
	ErrQueueFull error = busy("the queue is full: too many commands wait")
	// ErrUnrecorded means that nothing may start now, because the audit log would not have it.
	ErrUnrecorded error = busy("nothing starts now, because the audit log cannot be written")
	// ErrConflict is an ErrInvalid caused by the present state: a name is in use, or a sandbox has another state.
	ErrConflict = fmt.Errorf("%w: conflict", ErrInvalid)
	// ErrRegistry means that an image's registry did not answer, or answered with an error of its own.
	ErrRegistry = errors.New("the registry does not answer")
)

// busy is the text of an ErrBusy with another reason.
type busy string

func (b busy) Error() string      { return string(b) }
func (busy) Is(target error) bool { return target == ErrBusy }
