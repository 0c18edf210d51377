package worker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/build/containerfile"
	"demesne/build/devcontainer"
	"demesne/build/executor"
	"demesne/build/recipe"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/runner/ipc"
	"demesne/session"
)

// exitFailed is the exit code of a build that demesne could not do. A build whose RUN failed has that command's.
const exitFailed, exitUsage = 125, 2

// console is the program's environment.
type console struct {
	cmdline.Console
	events *reporter // of a caller that is a program; nil: a person reads stderr
	caller io.Reader // ends with the caller; nil: the signals decide
}

// main runs one command line and returns the exit code.
func (f *console) main(args []string) int {
	typed := &build.Options{}
	line := typed.Command()
	rest, err := line.Parse(args)
	if typed.Progress == build.EventProgress {
		f.events, f.caller = &reporter{f.Stdout}, f.Stdin
	}
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		io.WriteString(f.Stdout, line.Help(cmdline.TerminalOf(f.Stdout, f.Env).Width()))
		return 0
	case err != nil:
		return f.report(err, exitUsage)
	case typed.Recipe != "" && len(rest) > 0:
		return f.report(errors.New("--recipe has a context of its own"), exitUsage)
	case typed.Recipe != "":
	case len(rest) == 0:
		return f.report(text.Hinted(errors.New("needs a context"), "demesne build -t local/app ."), exitUsage)
	case len(rest) > 1:
		return f.report(fmt.Errorf("unexpected argument %q", rest[1]), exitUsage)
	}
	if len(rest) == 1 {
		typed.Context = rest[0]
	}
	return f.execute(typed)
}

// callerFD is the descriptor from which a request is read. The caller's end stays open until the build is no longer wanted.
const callerFD = 3

// request executes the build of one request on that descriptor.
func (f *console) request() int {
	caller := os.NewFile(callerFD, "caller")
	f.events, f.caller = &reporter{f.Stdout}, caller
	for fd := range callerFD + 1 + build.MaxFiles {
		if fd >= callerFD {
			unix.CloseOnExec(fd)
		}
	}
	typed := &build.Options{}
	line, err := bufio.NewReader(caller).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, typed)
	}
	if err != nil {
		return f.report(fmt.Errorf("read request: %w", err), exitUsage)
	}
	return f.execute(typed)
}

func (f *console) execute(typed *build.Options) int {
	o, err := f.options(typed)
	if err != nil {
		return f.report(err, exitUsage)
	}
	return f.build(o)
}

// report tells the caller why a build failed, and returns the exit code.
func (f *console) report(err error, code int) int {
	if refused, ok := errors.AsType[*ipc.Error](err); ok && refused.Hint != "" {
		err = text.Hinted(err, "%s", refused.Hint)
	}
	if f.events != nil {
		e := events.Event{Event: events.Error, Text: text.SafeLine(err.Error()), Hint: text.SafeLine(text.HintOf(err))}
		if at := (*containerfile.Error)(nil); errors.As(err, &at) && at.Line > 0 {
			e.Line, e.Why = at.Line, text.SafeLine(at.Err.Error())
		}
		f.events.write(e)
		return code
	}
	cmdline.Report(f.Stderr, "build", err)
	return code
}

// options checks what was typed.
func (f *console) options(t *build.Options) (o executor.Options, err error) {
	o = executor.Options{
		Dir: t.Context, File: t.File, Stdin: f.Stdin, Labels: t.Labels, NoCache: t.NoCache, Pull: t.Pull, IIDFile: t.IIDFile, Limits: t.Limits, Allowed: t.Images, Stored: t.Stored,
		Claimed: t.MaxLayers != 0, MaxLayers: max(t.MaxLayers, 0),
		Plan:   containerfile.Options{Target: t.Target, Platform: t.Platform, Args: map[string]string{}, Offline: t.Network == build.NoNetwork},
		Egress: session.Egress{Mode: cmp.Or(t.Egress, build.DefaultEgress), Allow: t.Allow, OpenWithInputs: true}, // a step has only what the caller gives it
		Env:    f.Env, Stdout: f.Stdout, Log: f.Stderr,
	}
	if f.events != nil {
		o.Events = f.events.write
	}
	if o.Style, err = styleOf(t.Progress, t.Quiet, cmdline.TerminalOf(f.Stderr, f.Env)); err != nil {
		return o, err
	}
	if o.Output, err = executor.ParseOutput(t.Output); err != nil {
		return o, err
	}
	if o.Secrets, err = executor.ParseSecrets(t.Secrets, f.Env); err != nil {
		return o, err
	}
	if o.Agents, err = executor.ParseAgents(t.SSH, f.Getenv); err != nil {
		return o, err
	}
	if o.Limits.Disk == 0 {
		o.Limits.Disk = -1
	}
	if o.Names, err = parseNames(t.Names); err != nil {
		return o, err
	}
	if o.Claimed && len(o.Names) != 1 {
		return o, errors.New("--max-layers: needs one --tag")
	}
	for _, a := range t.Args {
		name, value, given := strings.Cut(a, "=")
		if !given {
			if value, given = f.Env(name); !given {
				continue
			}
		}
		o.Plan.Args[name] = value
	}
	kept := slices.ContainsFunc(o.Names, func(n imageref.Ref) bool { return !strings.HasPrefix(n.Given, devcontainer.ImagePrefix) })
	o.Compress = kept && !o.Claimed && t.Recipe == "" && client.Lingers()
	if t.Recipe != "" {
		if o.File != "" {
			return o, errors.New("--recipe and --file exclude each other")
		}
		if o.Recipe, err = recipe.New(t.Recipe, o.Plan.Args); err != nil {
			return o, err
		}
		o.Names, o.Plan.Args = append(o.Names, o.Recipe.Ref), o.Recipe.Args
	}
	if t.Timestamp != "" {
		o.Epoch, err = executor.ParseEpoch("timestamp", t.Timestamp)
	}
	return o, err
}

// parseNames parses the names of an image.
func parseNames(words []string) (all []imageref.Ref, err error) {
	for _, word := range words {
		ref, err := session.ParseImage(word)
		if err != nil {
			return nil, fmt.Errorf("name %q: %w", word, err)
		}
		if ref.Kind != imageref.Bare && (ref.Kind != imageref.Registry || ref.Digest() != "") {
			return nil, fmt.Errorf("name %q: not a valid name for an image", word)
		}
		all = append(all, ref)
	}
	return all, nil
}

// styleOf resolves the words of --progress and --quiet.
func styleOf(word string, isQuiet bool, term cmdline.Terminal) (executor.Style, error) {
	switch {
	case word == build.EventProgress:
		return executor.Reported, nil
	case isQuiet:
		return executor.Quiet, nil
	case word == "plain":
		return executor.Plain, nil
	case word == "tty" && !term.Redraw:
		return executor.Plain, text.Hinted(fmt.Errorf("--progress tty: stderr is not a terminal that can redraw lines"), "--progress plain")
	case word == "tty", term.Redraw:
		return executor.Live, nil
	}
	return executor.Plain, nil
}

// build runs a build, reports how it ended, and returns its exit code.
func (f *console) build(o executor.Options) int {
	b, err := executor.Open(o)
	switch {
	case errors.Is(err, executor.ErrEpoch):
		return f.report(err, exitUsage)
	case err != nil:
		return f.report(err, exitFailed)
	}
	defer b.Close()
	ctx := procself.Ending()
	if f.caller != nil {
		ctx = lifeline(ctx, f.caller)
	}
	d, err := b.Run(ctx)
	var ended procself.Ended
	var failed *executor.ExitError
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return 128 + int(ended)
	case errors.As(err, &failed):
		return f.report(err, failed.Result.ExitCode)
	case err != nil:
		return f.report(err, exitFailed)
	case f.events != nil:
		f.events.write(events.Event{Event: events.Result, Digest: d})
	case !o.Output.ToStdout():
		fmt.Fprintln(f.Stdout, d)
	}
	return 0
}

// lifeline ends a build whose caller has closed its stdin or died.
func lifeline(ctx context.Context, stdin io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, stdin)
		cancel(errors.New("the caller has ended"))
	}()
	return ctx
}

// reporter writes events for package images.
type reporter struct{ to io.Writer }

func (r reporter) write(e events.Event) {
	if line, err := json.Marshal(e); err == nil {
		r.to.Write(append(line, '\n'))
	}
}
