// Package engines calls engines of clusters whose clients the program demesne does not link. Each call is one process of
// demesne-frontend:
//
//	demesne-frontend NAME VERB AT [ID…]
//
// stdin has the request of Submit and stdout the answer. An error is the last line of stderr, as JSON.
package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/runner/jobs"
)

// Verbs of every engine.
const (
	Submit = "submit"
	States = "states"
	Cancel = "cancel"
)

// Engine is a cluster.
type Engine struct {
	Name string // of its part of the program
	At   string // which cluster, may be empty
}

// problem is the last line of the program's stderr.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// Submit sends a request as JSON.
func (e Engine) Submit(ctx context.Context, request any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return e.Call(ctx, bytes.NewReader(b), nil, Submit)
}

// States asks for the states of jobs.
func (e Engine) States(ctx context.Context, ids []string) (states map[string]jobs.State, err error) {
	var out bytes.Buffer
	if err := e.Call(ctx, nil, &out, States, ids...); err != nil {
		return nil, err
	}
	err = json.Unmarshal(out.Bytes(), &states)
	for id, s := range states {
		s.Reason, s.Node = text.SafeLine(s.Reason), text.SafeLine(s.Node)
		states[id] = s
	}
	return states, err
}

// Cancel ends a job, and accepts one that has ended.
func (e Engine) Cancel(ctx context.Context, id string) error {
	return e.Call(ctx, nil, nil, Cancel, id)
}

// Call runs the program.
func (e Engine) Call(ctx context.Context, in io.Reader, out io.Writer, verb string, ids ...string) error {
	argv, err := client.FindFrontend(e.Name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], append([]string{argv[1], verb, e.At}, ids...)...)
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = in, out, 10*time.Second // a busy machine copies the output late
	var errs text.Last
	errs.Most = 64 << 10
	cmd.Stderr = &errs
	err = cmd.Run()
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var p problem
	said := bytes.TrimSpace(errs.End(64 << 10))
	if json.Unmarshal(said[bytes.LastIndexByte(said, '\n')+1:], &p) != nil || p.Error == "" {
		return fmt.Errorf("%s: %w: %s", argv[0], err, text.SafeLine(string(said)))
	}
	if err = errors.New(text.SafeLine(p.Error)); p.Hint != "" {
		err = text.Hinted(err, "%s", text.SafeLine(p.Hint))
	}
	return err
}

// Serve serves one call in the other program.
type Serve func(ctx context.Context, verb, at string, ids []string, in io.Reader, out io.Writer) error

// Main is the main function of an engine's part of demesne-frontend.
func Main(serve Serve) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := errors.New("demesne starts this program; users do not")
	if len(os.Args) >= 3 {
		err = serve(ctx, os.Args[1], os.Args[2], os.Args[3:], os.Stdin, os.Stdout)
	}
	if err != nil {
		json.NewEncoder(os.Stderr).Encode(problem{err.Error(), text.HintOf(err)})
		os.Exit(1)
	}
}
