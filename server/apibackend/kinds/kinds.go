// Package kinds gives errors of sessions the kinds of package session, from which an API chooses a status.
package kinds

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"demesne/images"
	"demesne/images/events"
	"demesne/internal/text"
	"demesne/runner/ipc"
	"demesne/session"
	"demesne/session/operator"
)

// kinds are the errors of package session, by the runner's codes.
var kinds = map[ipc.Code]error{
	ipc.CodeNoSuchSandbox: session.ErrNotFound, ipc.CodeNoSuchCommand: session.ErrNotFound, ipc.CodeGone: session.ErrNotFound,
	ipc.CodeInvalid: session.ErrInvalid, ipc.CodeExists: session.ErrConflict, ipc.CodeStopped: session.ErrConflict,
	ipc.CodeBusy: session.ErrBusy, ipc.CodeTooMuch: session.ErrBusy, ipc.CodeNoSpace: session.ErrBusy,
	ipc.CodeCommandNotFound: fs.ErrNotExist, ipc.CodeNotExecutable: syscall.EINVAL,
}

// Invalid gives a refusal of the policy its kind.
func Invalid(err error) error {
	if errors.Is(err, operator.ErrRefused) {
		return fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	return err
}

// As gives err a kind.
func As(err, kind error) error { return kinded{err, kind} }

// kinded is an error of a kind.
type kinded struct {
	error
	kind error
}

func (k kinded) Unwrap() []error { return []error{k.error, k.kind} }

// Of gives err its kind, and adds its hint to its text.
func Of(err error) error {
	var (
		e       *ipc.Error
		unknown *images.UnknownError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Code == ipc.CodeTooMany:
		return kinded{fmt.Errorf("%w (%s)", err, e.Hint), session.ErrQuota}
	case errors.As(err, &unknown):
		return kinded{err, session.ErrInvalid}
	case errors.As(err, &e) && kinds[e.Code] != nil:
		return kinded{err, kinds[e.Code]}
	case imageKind(err) != nil:
		return kinded{err, imageKind(err)}
	}
	if hint := text.HintOf(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// imageKinds are the errors of package session, by the codes of demesne-images.
var imageKinds = map[events.Code]error{
	events.CodeNotFound: session.ErrInvalid, events.CodeInvalid: session.ErrInvalid, events.CodeDenied: session.ErrInvalid,
	events.CodePlatform: session.ErrInvalid, events.CodeUnsupported: session.ErrInvalid, events.CodeNoImage: session.ErrInvalid,
	events.CodePolicy: session.ErrInvalid, events.CodeRefused: session.ErrInvalid, events.CodeCorrupt: session.ErrRegistry,
	events.CodeUnreachable: session.ErrRegistry, events.CodeBusy: session.ErrBusy, events.CodeNoSpace: syscall.ENOSPC,
}

// imageKind returns the kind of a failure of demesne-images; nil: err has no kind, or is this machine's own fault.
func imageKind(err error) error {
	if failure, ok := errors.AsType[*events.Failure](err); ok {
		return imageKinds[failure.Code]
	}
	return nil
}

// OfImage gives an error about an image of the store its kind.
func OfImage(err error) error {
	if errors.Is(err, images.ErrNotFound) {
		return kinded{err, session.ErrNotFound}
	}
	return Of(err)
}
