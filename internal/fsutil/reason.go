package fsutil

import (
	"errors"
	"io/fs"
	"syscall"
)

// Reason strips the operation and the path off a file system error, for messages that have the path as the user typed it.
func Reason(err error) error {
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

// PathReason returns the error's path and reason, without the name of the system call.
func PathReason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
