package sandboxes

import (
	"errors"
	"fmt"

	"demesne/images/events"
	"demesne/internal/text"
	"demesne/runner/ipc"
)

// Explained wraps err with the hint that it carries, if it has one.
func Explained(err error) error {
	var (
		e *ipc.Error
		f *events.Failure
	)
	switch {
	case errors.As(err, &e) && e.Code == ipc.CodeTooMany:
		return text.Hinted(err, "sandbox_destroy removes a sandbox; sandbox_list lists them")
	case errors.As(err, &e) && e.Code == ipc.CodeDiffers:
		return text.Hinted(err, "omit the differing arguments to use the sandbox as it is, or set replace: true to remove it with its files and create a new one")
	case errors.As(err, &e) && e.Hint != "":
		return text.Hinted(err, "%s", e.Hint)
	case errors.As(err, &f) && f.Hint != "":
		return text.Hinted(err, "%s", f.Hint)
	}
	return err
}

// Attached is Explained for a call about a sandbox, whose error says so if there is no such sandbox.
func Attached(id string, err error) error {
	if e, ok := errors.AsType[*ipc.Error](err); ok && (e.Code == ipc.CodeNoSuchSandbox || e.Code == ipc.CodeGone) {
		return text.Hinted(fmt.Errorf("attach to sandbox %s: %w", id, err), "sandbox_list lists the sandboxes that there are")
	}
	return Explained(err)
}
