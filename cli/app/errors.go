package app

import (
	"cmp"
	"errors"
	"fmt"

	"demesne/images"
	"demesne/images/events"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
)

// Exit codes that are not the command's own.
const (
	ExitUsage         = 2 // there is no such command
	ExitTimedOut      = 124
	ExitFailed        = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// ExitCode returns the exit code for an error that prevented the command from running.
func ExitCode(err error) int {
	var unknown *cmdline.UnknownError
	var e *ipc.Error
	switch {
	case errors.As(err, &unknown):
		return ExitUsage
	case errors.As(err, &e):
		switch e.Code {
		case ipc.CodeCommandNotFound:
			return exitNotFound
		case ipc.CodeNotExecutable:
			return exitNotExecutable
		}
	}
	return ExitFailed
}

// hints are the hints for runner errors that carry none.
func hints() map[ipc.Code]string {
	return map[ipc.Code]string{
		ipc.CodeNoSuchSandbox: "demesne ls lists sandboxes",
		ipc.CodeExists:        "demesne ls lists the names in use; demesne rm NAME frees a name",
		ipc.CodeDiffers:       "omit the flag to keep the sandbox's setting, or use --replace to remove the sandbox with its files and create a new one",
		ipc.CodeBusy:          "demesne stop ID ends its processes and keeps its files",
		ipc.CodeNoSpace:       "df shows which disk is full; demesne gc removes unused demesne data; demesne rm removes sandboxes and their files",
		ipc.CodeRequirement:   "demesne check names what is missing and how to fix it",
	}
}

func hintOf(err error) string {
	if h := text.HintOf(err); h != "" {
		return h
	}
	var used interface { // cow.UsedError
		error
		UsedBy() string
	}
	if errors.As(err, &used) {
		return fmt.Sprintf("demesne stop %s ends its processes and keeps its files", used.UsedBy())
	}
	if errors.Is(err, ipc.ErrTooLong) {
		return "arguments and environment (with the image's) are too large together: pass long values in a file or on stdin"
	}
	var e *ipc.Error
	if !errors.As(err, &e) {
		return cmp.Or(imageHint(err), hints()[ipc.AsError(err).Code])
	}
	if e.Hint != "" {
		return e.Hint
	}
	return hints()[e.Code]
}

// imageHint returns the hint for an image error. Errors of demesne-images carry their own.
func imageHint(err error) string {
	var f *events.Failure
	var unknown *images.UnknownError
	switch {
	case errors.As(err, &f):
		return f.Hint
	case errors.As(err, &unknown) && unknown.Near == "":
		return fmt.Sprintf("a single word is a catalogue name; for an image of Docker Hub add a tag: %s:latest", unknown.Name)
	case errors.As(err, &unknown):
		return ""
	case errors.Is(err, images.ErrCorrupt):
		return "run demesne images check to remove damaged data, then pull again"
	case errors.Is(err, images.ErrNotFound):
		return "demesne images --all lists known names; demesne pull NAME fetches an image"
	}
	return ""
}

// Wire returns err in the form that --json prints.
func Wire(err error) *ipc.Error {
	e := ipc.AsError(err)
	if f, ok := errors.AsType[*events.Failure](err); ok && e.Code == ipc.CodeInternal {
		e.Code = ipc.Code(f.Code)
	}
	e.Hint = hintOf(err)
	return e
}

// reasons are the texts for ends that the command did not cause itself.
func reasons() map[runner.Reason]string {
	return map[runner.Reason]string{
		runner.TimedOut: "timed out",
		runner.OOM:      "out of memory",
		runner.DiskFull: "disk limit",
		runner.PIDLimit: "too many processes",
		runner.Lost:     "sandbox lost",
	}
}

// ReasonLine returns the line about a command's end for stderr. It is empty for an exit or a signal, which the
// exit code reports.
func ReasonLine(verb string, r *runner.Result) string {
	word := reasons()[r.Reason]
	if word == "" {
		return ""
	}
	line := verb + ": " + word
	if r.Detail != "" {
		line += ": " + r.Detail
	}
	return line
}
