package fsutil

import (
	"errors"
	"io/fs"
	"syscall"
)

// Reason strips the operation and the path off a file system error, for messages that have the path as the user typed it.
func Reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// PathReason returns the error's path and reason, without the name of the system call.
func PathReason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
