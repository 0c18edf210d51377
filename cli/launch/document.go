package launch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/ipc"
)

// document is the destination of --json; nil discards it.
type document struct {
	to       *os.File
	Commands []Listed // of a list
}

// outcome is the JSON document: the result's fields and, unless it was streamed, the command's output.
type outcome struct {
	*runner.Result
	Manifest string   `json:"manifest,omitempty" doc:"File with the SHA-256 sums of the outputs, with --manifest."`
	Commands []Listed `json:"commands,omitempty" doc:"Results of the commands that ran, with --commands."`
	*stream.Written
}

type failed struct {
	ExitCode int        `json:"exit_code"`
	Error    *ipc.Error `json:"error"`
}

// openDocument opens the file of --json=FILE before anything runs, so that an unwritable one fails early.
func openDocument(c *app.Console, o *reportOptions) (*document, error) {
	switch {
	case !o.JSON:
		return nil, nil
	case o.JSONFile == "":
		return &document{to: c.Stdout}, nil
	}
	if fd, err := strconv.Atoi(strings.TrimPrefix(o.JSONFile, "/dev/fd/")); err == nil && strings.HasPrefix(o.JSONFile, "/dev/fd/") {
		f := os.NewFile(uintptr(fd), o.JSONFile)
		if f == nil || stream.FD(f) < 0 || stream.Stat(f).Mode == 0 {
			return nil, fmt.Errorf("json %q: not open", o.JSONFile)
		}
		return &document{to: f}, nil
	}
	f, err := os.OpenFile(o.JSONFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("json %q: %w", o.JSONFile, fsutil.Reason(err))
	}
	return &document{to: f}, nil
}

// write writes the single document of this run. err is the reason if there is no result.
func (d *document) write(r *runner.Result, manifest string, trace []runner.Stage, kept *stream.Capture, err error) error {
	if d == nil {
		return nil
	}
	if r == nil {
		return d.encode(failed{app.ExitCode(err), app.Wire(err)})
	}
	whole := *r
	whole.Trace = trace
	doc := outcome{Result: &whole, Manifest: manifest, Commands: d.Commands}
	if kept != nil && d.Commands == nil {
		doc.Written = kept.Written()
	}
	return d.encode(doc)
}

func (d *document) encode(v any) error {
	b, err := app.Marshal(v)
	if err != nil {
		return err
	}
	if err := stream.WriteAll(stream.FD(d.to), b); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// Listed is the result of one command of a list, as --json prints it.
type Listed struct {
	Index    int           `json:"index" doc:"Place in the list, from 0 on."`
	Command  string        `json:"command" doc:"The shell text, or the words of argv."`
	Failed   bool          `json:"failed" doc:"The exit code is not 0, and the list does not allow that."`
	ExitCode int           `json:"exit_code" doc:"As of a single command. 127: it does not exist, 126: it cannot be executed."`
	Signal   int           `json:"signal,omitempty" doc:"Number of the signal that ended the command."`
	Reason   runner.Reason `json:"reason" doc:"Cause of the end."`
	Detail   string        `json:"detail,omitempty" doc:"One line for a person."`
	Seconds  float64       `json:"seconds" doc:"Duration of the command."`
	runner.Spent
	*stream.Written
}
