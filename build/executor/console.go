package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/build/containerfile"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/session"
)

// exitFailed is the exit code of a build that demesne could not do. A build whose RUN failed has that command's.
const exitFailed, exitUsage = 125, 2

// console is the program's environment.
type console struct {
	stdin          *os.File
	stdout, stderr *os.File
	env            func(string) (string, bool)
	events         *reporter // of a caller that is a program; nil: a person reads stderr
	caller         io.Reader // ends with the caller; nil: the signals decide
}

func (f *console) getenv(name string) string {
	v, _ := f.env(name)
	return v
}

// main runs one command line and returns the exit code.
func (f *console) main(args []string) int {
	typed := &build.Options{}
	line := typed.Command()
	rest, err := line.Parse(args)
	if typed.Progress == build.EventProgress {
		f.events, f.caller = &reporter{f.stdout}, f.stdin
	}
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		io.WriteString(f.stdout, line.Help(cmdline.TerminalOf(f.stdout, f.env).Width()))
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
	f.events, f.caller = &reporter{f.stdout}, caller
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
	if f.events != nil {
		e := events.Event{Event: events.Error, Text: text.SafeLine(err.Error()), Hint: text.SafeLine(text.HintOf(err))}
		if at := (*containerfile.Error)(nil); errors.As(err, &at) && at.Line > 0 {
			e.Line, e.Why = at.Line, text.SafeLine(at.Err.Error())
		}
		f.events.write(e)
		return code
	}
	fmt.Fprintf(f.stderr, "demesne: build: %s\n", text.SafeLine(err.Error()))
	if hint := text.HintOf(err); hint != "" {
		fmt.Fprintf(f.stderr, "hint: %s\n", text.SafeLine(hint))
	}
	return code
}

// options checks what was typed.
func (f *console) options(t *build.Options) (o options, err error) {
	o = options{
		dir: t.Context, file: t.File, recipe: t.Recipe, labels: t.Labels, noCache: t.NoCache, pull: t.Pull, iidFile: t.IIDFile, limits: t.Limits, allowed: t.Images,
		claimed: t.MaxLayers != 0, most: max(t.MaxLayers, 0),
		plan:   containerfile.Options{Target: t.Target, Platform: t.Platform, Args: map[string]string{}, Offline: t.Network == build.NoNetwork},
		egress: session.Egress{Mode: t.Egress, Allow: t.Allow, OpenWithInputs: true}, // a step has only what the caller gives it
		env:    f.env,
	}
	if o.style, err = styleOf(t.Progress, t.Quiet, cmdline.TerminalOf(f.stderr, f.env)); err != nil {
		return o, err
	}
	if o.output, err = outputOf(t.Output); err != nil {
		return o, err
	}
	if o.secrets, err = secretsOf(t.Secrets, f.env); err != nil {
		return o, err
	}
	if o.agents, err = agentsOf(t.SSH, f.getenv); err != nil {
		return o, err
	}
	if o.egress.Mode == "" {
		o.egress.Mode = build.DefaultEgress
	}
	if o.limits.Disk == 0 {
		o.limits.Disk = -1
	}
	for _, name := range t.Names {
		ref, err := session.ParseImage(name)
		if err != nil {
			return o, fmt.Errorf("name %q: %w", name, err)
		}
		if ref.Kind != imageref.Bare && (ref.Kind != imageref.Registry || ref.Digest() != "") {
			return o, fmt.Errorf("name %q: not a valid name for an image", name)
		}
		o.names = append(o.names, ref)
	}
	if o.claimed && len(o.names) != 1 {
		return o, errors.New("--max-layers: needs one --tag")
	}
	for _, a := range t.Args {
		name, value, given := strings.Cut(a, "=")
		if !given {
			if value, given = f.env(name); !given {
				continue
			}
		}
		o.plan.Args[name] = value
	}
	if o.recipe != "" {
		if err := o.useRecipe(t.Args); err != nil {
			return o, err
		}
	}
	if t.Timestamp != "" {
		o.epoch, err = epochOf("timestamp", t.Timestamp)
	}
	return o, err
}

// epochArg is the variable with the time of the image and of its files, if --timestamp is not given: an argument of the build,
// this environment's, or the default of an ARG above the first FROM.
const epochArg = "SOURCE_DATE_EPOCH"

// setEpoch takes the time from that variable. An empty one means none.
func (o *options) setEpoch(plan *containerfile.Plan) (err error) {
	if o.epoch != nil {
		return nil
	}
	value, given := o.plan.Args[epochArg]
	if !given {
		value, given = o.env(epochArg)
	}
	if !given {
		value = plan.Global(epochArg)
	}
	if value != "" {
		o.epoch, err = epochOf(epochArg, value)
	}
	return err
}

func epochOf(what, text string) (*time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%s %q: not a number of seconds", what, text)
	}
	at := time.Unix(n, 0).UTC()
	return &at, nil
}

// build runs a build.
func (f *console) build(o options) int {
	typed := o.file
	file, remove, err := f.open(&o)
	defer remove()
	if err != nil {
		return f.report(err, exitFailed)
	}
	parsed, err := containerfile.Parse(filepath.Base(o.file), file)
	if err != nil {
		return f.report(err, exitFailed)
	}
	plan, err := parsed.Plan(o.plan)
	if err != nil {
		return f.report(err, exitFailed)
	}
	if err := o.setEpoch(plan); err != nil {
		return f.report(err, exitUsage)
	}
	if err := sweepTemp(); err != nil {
		return f.report(fmt.Errorf("remove what a killed build left: %w", err), exitFailed)
	}
	b := &builder{options: o, plan: plan, sessions: session.New(session.Options{})}
	defer b.sessions.Close()
	if b.context, err = openContext(&o, strings.TrimPrefix(typed, "-")); err != nil {
		return f.report(err, exitFailed)
	}
	if b.images, err = session.OpenImages(); err != nil {
		return f.report(err, exitFailed)
	}
	b.show = newShow(f.stderr, o.style, countOf(plan))
	b.show.events = f.events
	b.noteUnused()
	ctx := procself.Ending()
	do := b.build
	if o.recipe != "" {
		do = b.once
	}
	if f.caller != nil {
		ctx = lifeline(ctx, f.caller)
	}
	d, err := do(ctx)
	b.show.close()
	if err == nil && o.output.kind != "" {
		err = b.write(ctx, d, f.stdout)
	}
	if err == nil {
		b.compress(d)
	}
	return f.end(ctx, b, d, err)
}

// noteUnused names the arguments that no ARG declares, but not those of demesne itself.
func (b *builder) noteUnused() {
	own := map[string]string{}
	if b.options.recipe != "" {
		own = registryArgs()
	}
	for _, name := range b.plan.Unused {
		if own[name] == "" {
			b.show.note(fmt.Sprintf("build-arg %s: no ARG declares it", name))
		}
	}
}

// end reports how a build ended, and returns its exit code.
func (f *console) end(ctx context.Context, b *builder, d oci.Digest, err error) int {
	var ended procself.Ended
	var failed *ExitError
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return 128 + int(ended)
	case errors.As(err, &failed):
		return f.report(err, failed.Result.ExitCode)
	case err != nil:
		return f.report(err, exitFailed)
	case f.events != nil:
		f.events.write(events.Event{Event: events.Result, Digest: d})
		return 0
	}
	if b.options.output.dest != "-" {
		fmt.Fprintln(f.stdout, d)
	}
	return 0
}

// countOf returns how many instructions a build has. ONBUILD of a base may add some.
func countOf(p *containerfile.Plan) (n int) {
	for _, s := range p.Stages {
		n += len(s.Commands)
	}
	return n
}

// fileNames are the names of a Containerfile. The first that exists is used.
var fileNames = []string{"Containerfile", "Dockerfile", "dockerfile"}

// open opens the Containerfile, and makes the context of a build that reads it from stdin. The caller must call close,
// also after an error.
func (f *console) open(o *options) (file io.Reader, close func(), err error) {
	if o.recipe != "" {
		return o.openRecipe()
	}
	close = func() {}
	if o.stdin = o.dir == "-"; o.stdin {
		if o.file == "-" {
			return nil, close, errors.New("stdin cannot be both the context and the Containerfile")
		}
		if o.dir, close, err = tempDirIn(contextRoot()); err != nil {
			return nil, func() {}, err
		}
		if file, err = readStdin(f.stdin, o.dir); file != nil || err != nil {
			o.file = "-"
			return file, close, err
		}
		found, err := openFile(o, func(name string) (*os.File, error) { return os.OpenInRoot(o.dir, name) })
		if err != nil {
			return nil, close, err
		}
		remove := close
		return found, func() { found.Close(); remove() }, nil
	}
	if o.file == "-" {
		return f.stdin, close, nil
	}
	found, err := openFile(o, func(name string) (*os.File, error) { return os.Open(filepath.Join(o.dir, name)) })
	if err != nil {
		return nil, close, err
	}
	return found, func() { found.Close() }, nil
}

// openFile opens the Containerfile by its name, or the context's. of opens a file of the context.
func openFile(o *options, of func(name string) (*os.File, error)) (*os.File, error) {
	if o.file != "" {
		open := os.Open
		if o.stdin {
			open = of
		}
		file, err := open(o.file)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", o.file, fsutil.Reason(err))
		}
		return file, nil
	}
	for _, name := range fileNames {
		file, err := of(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		o.file = name
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", name, fsutil.Reason(err))
		}
		return file, nil
	}
	return nil, text.Hinted(fmt.Errorf("context %q: no %s", o.dir, strings.Join(fileNames[:2], " or ")), "-f names another file")
}
