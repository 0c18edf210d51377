package ipc

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Code is the class of an [Error], so that callers need not match its text.
type Code string

// The codes on which a caller acts. All other errors have CodeInternal.
const (
	CodeInternal        Code = "internal"
	CodeInvalid         Code = "invalid"        // the request itself is wrong
	CodeNoSuchSandbox   Code = "unknown"        // no such sandbox
	CodeNoSuchCommand   Code = "unknown-exec"   // no such command in a sandbox
	CodeMissing         Code = "missing"        // layers of the image are not unpacked
	CodeExists          Code = "exists"         // the name is taken
	CodeDiffers         Code = "differs"        // the sandbox with this key was created with other arguments
	CodeCommandNotFound Code = "not-found"      // the command does not exist: exit 127
	CodeNotExecutable   Code = "not-executable" // the command exists but cannot be executed: exit 126
	CodeRequirement     Code = "requirement"    // --require was not met
	CodeGone            Code = "gone"           // the sandbox or the runner ended during the call
	CodeStopped         Code = "stopped"        // the sandbox has no processes; its files are kept
	CodeBusy            Code = "busy"           // another runner has the sandbox, or it is running and must not be
	CodeNoSpace         Code = "full"           // a disk or a quota is full
	CodeTooMany         Code = "too-many"       // the user, or the frontend, has as many persistent sandboxes as allowed
	CodeTooMuch         Code = "too-much"       // all sandboxes together would exceed their total limits
)

// Error is an error that can cross a socket: a class, a message and an optional hint.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`           // a chain of "verb noun: reason"
	Hint string `json:"hint,omitempty"` // one line that says how to fix it; only programs print it
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an Error with a formatted text. If it wraps an *Error, it takes over the hint.
func Errorf(code Code, format string, a ...any) *Error {
	err := fmt.Errorf(format, a...)
	e := &Error{Code: code, Text: err.Error()}
	var inner *Error
	if errors.As(err, &inner) {
		e.Hint = inner.Hint
	}
	return e
}

// Full reports whether err means that a disk or a quota is full, on this side or the other.
func Full(err error) bool {
	var e *Error
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.As(err, &e) && e.Code == CodeNoSpace
}

// maxText bounds the text and the hint of an error that crosses a socket, in bytes. A text may quote words of an image or
// of a sandbox, which have megabytes if a stranger wrote them. An error that is too long for a message would never arrive,
// and its caller would wait forever.
const maxText = 16 << 10

// AsError converts err to an *Error of bounded size. An err that wraps an *Error keeps its code and hint.
func AsError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		code := CodeInternal
		if Full(err) {
			code = CodeNoSpace
		}
		return (&Error{Code: code, Text: err.Error()}).bounded()
	}
	return (&Error{Code: e.Code, Text: err.Error(), Hint: e.Hint}).bounded()
}

// bounded returns e with a text and a hint of at most maxText bytes.
func (e *Error) bounded() *Error {
	return &Error{Code: e.Code, Text: shortened(e.Text), Hint: shortened(e.Hint)}
}

// shortened leaves out the middle of a text that is too long: its beginning has the verb, and its end the reason.
func shortened(s string) string {
	const half, gap = maxText/2 - 4, "…"
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:half], "") + gap + strings.ToValidUTF8(s[len(s)-half:], "")
}

// NoSuchSandbox returns the error of an id or name that no sandbox has.
func NoSuchSandbox(idOrName string) *Error {
	return Errorf(CodeNoSuchSandbox, "find sandbox %q: no such sandbox", idOrName)
}
