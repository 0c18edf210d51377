package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"demesne/images/events"
	"demesne/runner/client"
)

// RequestVerb is the verb of demesne-images that executes one build for [Run]. It reads the Options from descriptor 3 as
// JSON, and ends when its caller closes the other end. Its only output is an event with the result.
const RequestVerb = "build-request"

// MaxFiles bounds [Streams].Files.
const MaxFiles = 2

// Streams are the files of a build. The zero value has none.
type Streams struct {
	Stdin io.Reader // read where the options have "-" as Context or File
	Log   io.Writer // progress and the output of commands, for people; a terminal is redrawn
	// Files are for paths in the options: the first one is /proc/self/fd/4. There are at most MaxFiles.
	Files []*os.File
}

// Result describes the image of a build.
type Result struct{ Digest string }

// Failure is why a build failed.
type Failure struct {
	Text   string
	Line   int    // of the Containerfile; 0: not one line's
	Reason string // Text without the position
	hint   string
}

func (f *Failure) Error() string { return f.Text }

// Hint is for [text.HintOf].
func (f *Failure) Hint() string { return f.hint }

// grace is how long an interrupted build may take to remove its sandboxes and intermediate images.
const grace = 10 * time.Second

// Run builds an image. A process of demesne-images executes the build, because contexts and archives are untrusted, and so
// that callers need not link it. The process does not outlive this one. A build that fails returns a [Failure].
func Run(ctx context.Context, o Options, s Streams) (*Result, error) {
	program, err := client.FindProgram("demesne-images")
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start build: %w", err)
	}
	defer ours.Close()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, RequestVerb)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.Stdin, &said, s.Log, append([]*os.File{theirs}, s.Files...)
	cmd.Cancel, cmd.WaitDelay = ours.Close, grace
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start build: %w", err)
	}
	_, werr := ours.Write(append(request, '\n'))
	err = errors.Join(cmd.Wait(), werr)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return outcome(said.Bytes(), err)
}

// outcome reads the last event. ended is the error with which the program ended.
func outcome(said []byte, ended error) (*Result, error) {
	var e events.Event
	err := json.Unmarshal(said, &e)
	switch {
	case err == nil && e.Event == events.Result:
		return &Result{string(e.Digest)}, nil
	case err == nil && e.Event == events.Error:
		return nil, &Failure{e.Text, e.Line, e.Why, e.Hint}
	case ended == nil:
		ended = errors.New("exit status 0")
	}
	return nil, fmt.Errorf("ended without a result: %w%s", ended, strings.TrimRight(" "+string(said), " \n"))
}
