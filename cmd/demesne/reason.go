package main

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// checkInput is the part of the check that needs no file system.
func checkInput(arg string) error {
	switch {
	case arg == "":
		return errors.New("empty")
	case strings.ContainsRune(arg, 0):
		return errors.New("has a NUL byte")
	}
	return nil
}

// reason strips the operation and the path off a file system error: the caller prints the path as the user
// typed it.
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
