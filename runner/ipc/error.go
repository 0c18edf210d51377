package ipc

import (
	"errors"
	"fmt"
	"syscall"
)

// Code classes an [Error], so that no side matches one by its text.
type Code string

// The codes a caller acts on. Everything else is CodeInternal.
const (
	CodeInternal      Code = "internal"
	CodeInvalid       Code = "invalid"        // the request itself is wrong
	NoSuchSandbox     Code = "unknown"        // no such sandbox or exec
	CodeMissing       Code = "missing"        // layers of the image are not unpacked
	CodeExists        Code = "exists"         // the name is taken
	CodeDiffers       Code = "differs"        // the sandbox of the key was made with other arguments
	CommandNotFound   Code = "not-found"      // the command does not exist: exit 127
	CodeNotExecutable Code = "not-executable" // it exists and cannot be executed: exit 126
	CodeRequirement   Code = "requirement"    // --require was not met
	CodeGone          Code = "gone"           // the sandbox or the runner ended meanwhile
	CodeStopped       Code = "stopped"        // no process of the sandbox is left, and its files are kept
	CodeBusy          Code = "busy"           // another runner has the sandbox, or it runs and must not
	NoSpace           Code = "full"           // a disk is, or a quota
	CodeTooMuch       Code = "too-much"       // all sandboxes together would have more than they may
)

// Error is an error that crossed a socket: a fact, its class, and what to type.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`           // a chain of "verb noun: reason"
	Hint string `json:"hint,omitempty"` // what lifts it, one line; only programs print it
}

func (e *Error) Error() string { return e.Text }

// Errorf makes an Error; a wrapped *Error passes its hint on.
func Errorf(code Code, format string, a ...any) *Error {
	err := fmt.Errorf(format, a...)
	e := &Error{Code: code, Text: err.Error()}
	var inner *Error
	if errors.As(err, &inner) {
		e.Hint = inner.Hint
	}
	return e
}

// Full says whether err is that there is no space left, on this side or the other.
func Full(err error) bool {
	var e *Error
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.As(err, &e) && e.Code == NoSpace
}

// AsError returns err as it travels: itself if it already is an *Error.
func AsError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		code := CodeInternal
		if Full(err) {
			code = NoSpace
		}
		return &Error{Code: code, Text: err.Error()}
	}
	return &Error{Code: e.Code, Text: err.Error(), Hint: e.Hint}
}
