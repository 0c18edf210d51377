// Package runtools executes the MCP tools of the tool set runs, which are mcp-sandboxd's, over a session and package
// server/runs.
package runtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/mcp"
	"demesne/mcp/toolbackend/sandboxes"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/fileops"
	"demesne/runner/ipc"
	"demesne/runner/tarball"
	"demesne/server/runs"
	"demesne/session"
)

// Open opens the runs of the HTTP server. Their processes call [Attend].
func Open() (*runs.Store, error) {
	dir, err := fsutil.StateDir("server")
	if err != nil {
		return nil, err
	}
	argv, err := client.FindFrontend("mcp")
	if err != nil {
		return nil, err
	}
	all, err := session.New(session.Options{}).Jobs() // has the operator's bound
	if err != nil {
		return nil, err
	}
	return runs.Open(filepath.Join(dir, "runs"), all.Slots, append(argv, "run"))
}

// Attend executes one run. The process that does nothing else outlives the server that started it. open opens the sandboxes of a
// namespace.
func Attend(ctx context.Context, job string, open func(namespace string) (*sandboxes.Sandboxes, error)) error {
	store, err := Open()
	if err != nil {
		return err
	}
	var turn *flock.Turn // of a run that locks its sandbox
	stand := func(id string, r *runs.Request) (err error) {
		if r.Lock {
			turn, err = standInLine(r, id)
		}
		return err
	}
	return store.Attend(ctx, job, stand, func(ctx context.Context, r *runs.Request, rec *runs.Recorder) error {
		f, err := open(r.Namespace)
		if err != nil {
			return err
		}
		defer f.Close()
		if turn != nil {
			defer turn.Leave()
			if err := turn.Wait(ctx); err != nil {
				return err
			}
		}
		return (&Tools{f, store}).do(ctx, r, rec)
	})
}

// lineTime bounds the wait for a run to stand in line. One that waits for a free process is not in line yet.
const lineTime = 5 * time.Second

// Tools is a [mcp.Runs] over a store, for the callers of one namespace.
type Tools struct {
	*sandboxes.Sandboxes
	Store *runs.Store
}

// sees reports whether f's callers have a namespace.
func (f *Tools) sees(namespace string) bool { return namespace == f.Namespace }

func (f *Tools) Run(ctx context.Context, arguments json.RawMessage, sandbox session.Request) (*mcp.StartedRun, error) {
	r, err := runs.Parse(arguments)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", mcp.ErrArguments, err)
	}
	r.Namespace = f.Namespace
	warnings := reduce(r.Commands, f.Policy.Time(runner.Longest))
	if r.Sandbox, err = json.Marshal(sandbox); err != nil {
		return nil, err
	}
	if err := f.Closed(); err != nil {
		return nil, err
	}
	run, err := f.Store.Start(r)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	if r.Lock { // such runs have their turns in the order of their answers
		late, cancel := context.WithTimeout(ctx, lineTime)
		f.Store.Begun(late, run.ID)
		cancel()
	}
	out := &mcp.StartedRun{Warnings: warnings, ID: run.ID, EventsURL: runs.EventsURL(run.ID), StatusURL: runs.StatusURL(run.ID), Identifier: run.Identifier}
	if r.Await > 0 {
		done, err := f.Store.Wait(ctx, run.ID, r.Await, f.sees)
		if err != nil {
			return nil, err
		}
		if run = done; run.State.Over() {
			out.Final = run
		}
	}
	out.SandboxName = run.SandboxName
	return out, nil
}

// reduce reduces the times of commands to the operator's, and says so: mcp-sandboxd's clients do not expect a ceiling.
func reduce(commands []runs.Step, most time.Duration) (said []string) {
	n := 0
	for i := range commands {
		if s := &commands[i]; s.TimeoutMS > most.Milliseconds() {
			s.TimeoutMS = most.Milliseconds()
			n++
		}
	}
	if n > 0 {
		said = append(said, fmt.Sprintf("timeout_ms of %d of %d commands: reduced to %d, the operator's maximum", n, len(commands), most.Milliseconds()))
	}
	return said
}

// keyOf returns the key of the sandbox of an identifier. A key that a model chooses never has this prefix.
func keyOf(identifier string) string { return "run/" + identifier }

func (f *Tools) Restart(ctx context.Context, arguments json.RawMessage, sandbox session.Request) (*mcp.RunSandbox, error) {
	identifier, ttl, err := runs.ParseTTL(arguments)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", mcp.ErrArguments, err)
	}
	r := &runs.Request{Identifier: identifier, TTL: ttl}
	sb, err := f.ensure(ctx, r, sandbox, true)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	info, err := f.Inspect(ctx, sb.ID)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	return &mcp.RunSandbox{
		Identifier: identifier, ContainerID: info.ID, Name: info.ID, Image: info.Spec.Image,
		Created: info.Created.UTC().Format(time.RFC3339), Expires: info.Expires.UTC().Format(time.RFC3339),
	}, nil
}

func (f *Tools) Delete(ctx context.Context, arguments json.RawMessage) (string, error) {
	identifier, _, err := runs.ParseTTL(arguments)
	if err != nil {
		return "", fmt.Errorf("%w: %w", mcp.ErrArguments, err)
	}
	id, err := f.OfKey(ctx, keyOf(identifier))
	if err == nil {
		err = f.Remove(ctx, id)
	}
	return identifier, sandboxes.Explained(identified(identifier, err))
}

// identified returns an error about the sandbox of an identifier in the words of its caller, who knows neither key nor id.
func identified(identifier string, err error) error {
	if e := (*ipc.Error)(nil); errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox {
		return ipc.Errorf(ipc.CodeNoSuchSandbox, "identifier %q: no sandbox has this identifier", identifier)
	}
	return err
}

// ensure makes the sandbox of a run, or finds it. One whose settings the operator has changed since is replaced.
func (f *Tools) ensure(ctx context.Context, r *runs.Request, sandbox session.Request, replace bool) (*session.Sandbox, error) {
	sandbox.Create.Spec.Key, sandbox.Create.Spec.TTL, sandbox.Create.Spec.Replace = keyOf(r.Identifier), runner.Duration(r.TTL), replace
	c, err := f.Options(sandbox)
	if err != nil {
		return nil, err
	}
	c.Unasked = append(c.Unasked, "ttl", "memory", "cpus", "pids", "disk")
	sb, err := f.Service.Create(ctx, c, session.Callbacks{})
	if e, ok := errors.AsType[*ipc.Error](err); ok && e.Code == ipc.CodeDiffers {
		c.Spec.Replace = true
		sb, err = f.Service.Create(ctx, c, session.Callbacks{})
	}
	if err != nil || sb.Existing {
		return sb, err
	}
	if err := makeArtifacts(ctx, sb); err != nil {
		f.Discard(sb.ID)
		return nil, err
	}
	return sb, nil
}

// makeArtifacts makes the directory for artifacts, unless the image contains it.
func makeArtifacts(ctx context.Context, sb *session.Sandbox) error {
	t, err := sb.Tree(ctx, nil, "/")
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = t.Do(ctx, fileops.Request{Op: fileops.OpMkdir, Path: runs.ArtifactsDir}, nil, nil)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// plainUser is the uid and the gid of the user "sandbox".
const plainUser = 1000

// openPlaces lets every user of the sandbox write to the directories of a run. An image without chmod has them as they are.
func openPlaces(ctx context.Context, s *session.Service, sb *session.Sandbox) {
	cmd := runner.Command{Argv: []string{"chmod", "1777", "/workspace", runs.ArtifactsDir}, User: &runner.User{}}
	s.Exec(ctx, sb.ID, session.RunOptions{Command: cmd, Stdout: io.Discard, Stderr: io.Discard}, session.Callbacks{})
}

// do executes a run.
func (f *Tools) do(ctx context.Context, r *runs.Request, rec *runs.Recorder) error {
	var sandbox session.Request
	if err := json.Unmarshal(r.Sandbox, &sandbox); err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	sb, err := f.ensure(ctx, r, sandbox, false)
	if err != nil {
		return sandboxes.Explained(err)
	}
	if r.Plain {
		openPlaces(ctx, f.Service, sb)
	}
	rec.Started(sb.ID, sb.ID)
	err = f.runCommands(ctx, r, rec, sb)
	if ctx.Err() == nil {
		rec.Keep(func(to *os.Root, l tarball.Limits) error {
			_, err := sb.CopyOut(ctx, runs.ArtifactsDir, to, l)
			return err
		})
	}
	return err
}

// standInLine joins the line of runs that lock the same sandbox.
func standInLine(r *runs.Request, id string) (*flock.Turn, error) {
	dir, err := flock.QueueDir()
	if err != nil {
		return nil, err
	}
	return flock.JoinQueue(dir, "run-"+r.Namespace+"-"+r.Identifier, id)
}

// runCommands executes the commands of a run, until one fails.
func (f *Tools) runCommands(ctx context.Context, r *runs.Request, rec *runs.Recorder, sb *session.Sandbox) (first error) {
	for i := range r.Commands {
		s, nth := &r.Commands[i], i+1 // of a person, who counts from 1
		out := rec.Command(i)
		res, err := f.runCommand(ctx, r, s, sb, out)
		if ctx.Err() != nil {
			out.Ended(res)
			return context.Cause(ctx)
		}
		if out.Ended(res) || s.AllowFailure {
			continue
		}
		switch {
		case first != nil:
		case err != nil:
			first = fmt.Errorf("command %d: %w", nth, sandboxes.Explained(err))
		case res.Reason == runner.TimedOut:
			first = fmt.Errorf("command %d timed out", nth)
		case res.Reason != runner.Exited:
			first = fmt.Errorf("command %d: %s", nth, res.Detail)
		default:
			first = fmt.Errorf("command %d failed with exit %d", nth, res.ExitCode)
		}
		if !r.GoOn {
			break
		}
	}
	return first
}

// runCommand executes a command. A command that the sandbox does not have gets a line on stderr and exit code 127.
func (f *Tools) runCommand(ctx context.Context, r *runs.Request, s *runs.Step, sb *session.Sandbox, out *runs.Output) (*runner.Result, error) {
	cmd := runner.Command{Argv: s.Argv, Dir: s.Cwd, Timeout: time.Duration(s.TimeoutMS) * time.Millisecond}
	if s.Shell != "" {
		cmd.Argv, cmd.Else = []string{"bash", "-lc", s.Shell}, [][]string{{"/bin/sh", "-c", s.Shell}}
	}
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	switch {
	case r.Root:
		cmd.User = &runner.User{}
	case r.Plain:
		cmd.User = &runner.User{UID: plainUser, GID: plainUser}
	}
	done, err := f.Service.Exec(ctx, sb.ID, session.RunOptions{Command: cmd, Stdout: out.Stdout, Stderr: out.Stderr}, session.Callbacks{})
	if e, ok := errors.AsType[*ipc.Error](err); ok && (e.Code == ipc.CodeCommandNotFound || e.Code == ipc.CodeNotExecutable) {
		fmt.Fprintln(out.Stderr, e.Error())
		code := 127
		if e.Code == ipc.CodeNotExecutable {
			code = 126
		}
		return &runner.Result{Reason: runner.Exited, ExitCode: code}, nil
	}
	if done == nil {
		return nil, err
	}
	return done.Result, err
}
