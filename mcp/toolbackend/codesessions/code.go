// Package codesessions executes the MCP tools for code over a session and package kernels/code.
package codesessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/driver"
	"demesne/kernels/languages"
	"demesne/kernels/syntax"
	"demesne/mcp"
	"demesne/mcp/toolbackend/sandboxes"
	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/session"
)

// Sessions is a [mcp.Code] over package code: it turns requests of models into sessions' options.
type Sessions struct {
	*sandboxes.Sandboxes
	store *code.Store

	mu    sync.Mutex
	about map[*code.Session]*about // of the sessions in the store
}

// about is what the frontend keeps about a session.
type about struct {
	image, egress string
	offline       bool // no egress, and no person can allow any
	create        session.CreateOptions
	figures       code.Figures
}

// Open opens the sessions that the environment configures.
func Open(f *sandboxes.Sandboxes, getenv func(string) string) (*Sessions, error) {
	l, err := code.LimitsFrom(getenv)
	if err != nil {
		return nil, err
	}
	c := &Sessions{Sandboxes: f, store: code.NewStore(f.Service, l), about: map[*code.Session]*about{}}
	f.Hold = c.hold
	return c, nil
}

// Close ends all sessions.
func (f *Sessions) Close() { f.store.Close() }

// workDir is the working directory of a session's kernel: what code writes there is on the host.
const workDir = "/out"

func (f *Sessions) StartSession(ctx context.Context, r code.Request, w session.Callbacks) (*code.SessionInfo, error) {
	o, err := f.sessionOptions(r)
	if err != nil {
		return nil, err
	}
	s, err := f.store.Create(ctx, r.Owner, o, w)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	e := o.Create.Egress
	f.mu.Lock()
	live := f.store.List(r.Owner)
	for old := range f.about {
		if old.Death() != nil && !slices.Contains(live, old) {
			delete(f.about, old)
		}
	}
	f.about[s] = &about{image: r.Create.Image.String(), egress: e.Mode, offline: e.Mode == runner.NoEgress && len(e.Allow) == 0 && e.Ask == 0, create: o.Create, figures: code.Figures{Dir: s.Sandbox.Out}}
	f.mu.Unlock()
	made := f.describe(s)
	return &made, nil
}

// sessionOptions returns the session that a request asks for.
func (f *Sessions) sessionOptions(r code.Request) (o code.Options, err error) {
	if o.Language, err = language(r.Language); err != nil {
		return o, err
	}
	for _, word := range r.Dependencies {
		d, err := o.Language.ParseDependency(word)
		if err != nil {
			return o, err
		}
		o.Dependencies = append(o.Dependencies, d)
	}
	o.Kernel, o.Dir = r.Kernel, workDir
	o.Create, err = f.Options(r.Request)
	return o, err
}

// language returns the row of the table with that name or alias.
func language(name string) (languages.Language, error) {
	l, ok := languages.Find(name)
	if ok {
		return l, nil
	}
	var names []string
	for _, l := range languages.All() {
		names = append(append(names, l.Name), l.Aliases...)
	}
	err := fmt.Errorf("language %q is not known (%s)", name, strings.Join(Languages(), ", "))
	if near := text.Nearest(strings.ToLower(name), names); near != "" {
		err = text.Hinted(err, "did you mean %s?", near)
	}
	return l, err
}

// Languages returns the names of the languages that sessions execute.
func Languages() (names []string) {
	for _, l := range languages.All() {
		names = append(names, l.Name)
	}
	return names
}

func (f *Sessions) Session(owner, id string) (*code.SessionInfo, error) {
	s, err := f.store.Get(owner, id)
	if err != nil {
		return nil, err
	}
	found := f.describe(s)
	return &found, nil
}

func (f *Sessions) Sessions(owner string) (list []code.SessionInfo) {
	for _, s := range f.store.List(owner) {
		if s.Death() == nil {
			list = append(list, f.describe(s))
		}
	}
	return list
}

func (f *Sessions) describe(s *code.Session) code.SessionInfo {
	b := code.SessionInfo{ID: s.ID, Sandbox: s.Sandbox.ID, Language: s.Language.Name, OutputDir: s.Sandbox.Out, Created: s.Created}
	if a := f.aboutOf(s); a != nil {
		b.Image, b.Egress = a.image, a.egress
	}
	if info := s.Kernel().Info; info != nil {
		b.Kernel = text.SafeLine(fmt.Sprintf("%.60s %.60s (%.60s)", info.Language.Name, info.Language.Version, info.Implementation))
	}
	if since, idle := s.Idle(); idle {
		b.Used = since
	}
	if i := s.Installed; i != nil && !i.OK {
		b.InstallError = strings.TrimSpace(i.Stderr + "\n" + i.Hint)
	}
	return b
}

func (f *Sessions) aboutOf(s *code.Session) *about {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.about[s]
}

func (f *Sessions) StopSession(_ context.Context, owner, id string) error {
	s, err := f.store.Get(owner, id)
	if err == nil {
		err = f.store.Stop(owner, id)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.about, s)
	return nil
}

func (f *Sessions) Execute(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error) {
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.Session == "" {
		return f.once(ctx, r, w)
	}
	s, err := f.store.Get(r.Owner, r.Session)
	if err != nil {
		return nil, err
	}
	if r.Language != "" {
		l, err := language(r.Language)
		if err != nil {
			return nil, err
		}
		if l.Name != s.Language.Name {
			return nil, fmt.Errorf("session %s executes %s, not %s: leave language out, or leave session_id out", s.ID, s.Language.Name, l.Name)
		}
	}
	var figures *code.Figures
	if a := f.aboutOf(s); a != nil {
		figures = &a.figures
	}
	return f.execute(ctx, s, figures, r, w)
}

// once executes code in a sandbox of its own: in a kernel if the language has one of demesne's, or one was named, and else
// by the interpreter. A script of bash ends as a process of its own does, with an exit status and traps.
func (f *Sessions) once(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error) {
	o, err := f.sessionOptions(r)
	if err != nil {
		return nil, err
	}
	if (o.Language.Driver == "" || o.Language.Name == "bash" || driver.Argv(o.Language.Name) == nil) && r.Kernel == "" {
		return f.program(ctx, o, r, w)
	}
	if o.Kernel == "" { // a kernel of Jupyter starts more slowly, and one execution needs nothing more
		o.Kernel = code.Driver
	}
	s, err := f.store.Once(ctx, o, w)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	defer s.Close()
	if i := s.Installed; i != nil && !i.OK {
		return notInstalled(i), nil
	}
	d, err := f.execute(ctx, s, &code.Figures{Dir: s.Sandbox.Out}, r, w)
	if err == nil {
		d.Count = 0
	}
	return d, err
}

// execute executes code in a session.
func (f *Sessions) execute(ctx context.Context, s *code.Session, figures *code.Figures, r code.Request, w session.Callbacks) (*code.Result, error) {
	defer f.Answer(s.Sandbox.ID, w.Ask)()
	hidden := f.Hidden(s.Sandbox.ID)
	shown := code.NewHider(hidden, func(o kernels.Output) {
		if w.Stream != nil {
			w.Stream(o.Stdout + o.Stderr)
		}
	})
	res, err := s.Execute(ctx, kernels.Execution{Code: r.Code, Timeout: r.Run.Command.Timeout, Emit: shown.Show})
	shown.Rest()
	var death *code.Death
	if err != nil && !errors.As(err, &death) {
		return nil, sandboxes.Explained(err)
	}
	d := resultOf(res, figures, r.Run.Command.Timeout, hidden)
	d.OutputDir = s.Sandbox.Out
	if death != nil {
		d.Failed, d.Died, d.Hint = true, death.Reason, death.Hint()
	}
	return d, nil
}

// resultOf converts an execution's result without the values of secrets, and saves what it showed. res may be nil.
func resultOf(res *kernels.Result, figures *code.Figures, limit time.Duration, hidden *redact.Values) *code.Result {
	if res == nil {
		return &code.Result{}
	}
	value := code.Blanked(res.Value, hidden)
	d := &code.Result{Stdout: tailOf(res.Stdout), Stderr: tailOf(res.Stderr), Value: code.Texts(value), Dropped: res.Dropped, Count: res.Count}
	for _, t := range []*session.Tail{&d.Stdout, &d.Stderr} {
		t.Text, t.Head = hidden.Text(t.Text), hidden.Text(t.Head)
	}
	if e := res.Error; e != nil {
		d.Failed, d.Type, d.Message = true, e.Type, hidden.Text(e.Message)
		for _, line := range e.Traceback {
			d.Traceback = append(d.Traceback, hidden.Text(line))
		}
	}
	if res.TimedOut {
		d.Failed, d.TimedOut, d.Type = true, true, "TimeoutError"
		d.Message = fmt.Sprintf("interrupted after %s; what ran before has its effect", limit)
		d.Hint = "the session keeps its variables; split the work, or pass a longer timeout"
	}
	for _, b := range res.Displays {
		d.Outputs = append(d.Outputs, outputOf(code.Blanked(b, hidden), figures))
	}
	if plain, ok := code.Plain(value); ok {
		d.Value = map[string]string{"text/plain": shortTable(plain)}
	}
	if s, ok := code.Richest(value); ok && s.Data != nil {
		d.Outputs = append(d.Outputs, outputOf(value, figures))
	}
	return d
}

// outputOf converts what code showed, and saves it to a file unless plain text shows it.
func outputOf(b kernels.Bundle, figures *code.Figures) code.Output {
	if plain, ok := code.Plain(b); ok {
		return code.Output{MIME: "text/plain", Text: shortTable(plain)}
	}
	s, ok := code.Richest(b)
	if !ok {
		plain, _ := b.Text("text/plain")
		return code.Output{MIME: "text/plain", Text: plain}
	}
	o := code.Output{MIME: s.MIME, Text: s.Text, Data: s.Data}
	if figures != nil {
		o.File, _ = figures.Save(s) // a full disk or a removed directory: the result has the value
	}
	return o
}

// tableLines bounds the lines of a value that code showed as text.
const tableLines = 60

// shortTable returns the first and the last lines of a long text.
func shortTable(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) <= tableLines {
		return s
	}
	out := len(lines) - tableLines
	mark := fmt.Sprintf("[%d lines left out]", out)
	return strings.Join(slices.Concat(lines[:tableLines/2], []string{mark}, lines[tableLines/2+out:]), "\n")
}

// tailOf returns the kept end of a stream.
func tailOf(l text.Last) session.Tail {
	kept := session.Last{Last: l}
	return kept.Tail(kernels.MaxStream)
}

func (f *Sessions) Install(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error) {
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s, err := f.store.Get(r.Owner, r.Session)
	if err != nil {
		return nil, err
	}
	var all []languages.Dependency
	for _, word := range r.Dependencies {
		d, err := s.Language.ParseDependency(word)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	if a := f.aboutOf(s); a != nil && a.offline {
		return &code.Result{Failed: true, Message: "the session has no network"}, nil
	}
	defer f.Answer(s.Sandbox.ID, w.Ask)()
	tooLong := fmt.Errorf("the installation did not end within %s", r.Run.Command.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, r.Run.Command.Timeout, tooLong)
	defer cancel()
	i, err := s.Install(ctx, all)
	switch {
	case errors.Is(err, tooLong):
		return &code.Result{Failed: true, Message: err.Error(), Hint: "pass a longer timeout"}, nil
	case err != nil:
		return nil, sandboxes.Explained(err)
	case !i.OK:
		return notInstalled(i), nil
	}
	return &code.Result{}, nil
}

// notInstalled is the result of an installation that failed.
func notInstalled(i *code.Installed) *code.Result {
	return &code.Result{
		Failed: true, Type: "InstallError", Message: "the packages could not be installed", Hint: i.Hint,
		Stderr: session.Tail{Text: i.Stderr, Bytes: int64(len(i.Stderr))},
	}
}

func (f *Sessions) Inspect(ctx context.Context, owner, id string) (*code.SessionState, error) {
	s, err := f.store.Get(owner, id)
	if err != nil {
		return nil, err
	}
	got := &code.SessionState{SessionInfo: f.describe(s)} // before the inspection, which uses the session
	got.State = s.Inspect(ctx)
	return got, nil
}

func (f *Sessions) Restart(ctx context.Context, owner, id string) (*code.SessionInfo, error) {
	s, err := f.store.Get(owner, id)
	if err != nil {
		return nil, err
	}
	if err := s.Restart(ctx); err != nil {
		return nil, sandboxes.Explained(err)
	}
	restarted := f.describe(s)
	return &restarted, nil
}

func (f *Sessions) Ping(ctx context.Context, owner, id string) (busy bool, err error) {
	s, err := f.store.Get(owner, id)
	if err != nil {
		return false, err
	}
	return s.Ping(ctx)
}

func (f *Sessions) Bridge(ctx context.Context, b code.Bridge) (int, error) {
	to, err := f.store.Get(b.Owner, b.Session)
	if err != nil {
		return 0, err
	}
	if b.From != "" {
		from, err := f.store.Get(b.Owner, b.From)
		if err != nil {
			return 0, err
		}
		if b.Data, err = from.Value(ctx, b.FromName); err != nil {
			return 0, fmt.Errorf("session %s: %w", b.From, err)
		}
	}
	if err := to.SetValue(ctx, b.Name, b.Data); err != nil {
		return 0, fmt.Errorf("session %s: %w", b.Session, err)
	}
	return len(b.Data), nil
}

func (f *Sessions) Runtimes(ctx context.Context, r code.Request, w session.Callbacks) ([]code.Runtime, error) {
	all, err := code.Runtimes(ctx, f.Service, r.Create, w)
	return all, sandboxes.Explained(err)
}

// hold keeps the store from ending the session of a sandbox while a command or a copy uses the sandbox.
func (f *Sessions) hold(sandbox string) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.about {
		if s.Sandbox.ID == sandbox {
			return s.Hold()
		}
	}
	return func() {}
}

var _ mcp.Code = (*Sessions)(nil)

func (f *Sessions) Check(ctx context.Context, r code.Request, w session.Callbacks) (*code.Result, error) {
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := language(r.Language)
	if err != nil {
		return nil, err
	}
	var c session.CreateOptions
	if r.Session == "" {
		c = r.Create
	} else if s, unknown := f.store.Get(r.Owner, r.Session); unknown != nil {
		err = unknown
	} else if a := f.aboutOf(s); a != nil {
		c = a.create
	}
	if err != nil {
		return nil, err
	}
	d := &code.Result{}
	if r.Patterns {
		d.Patterns = syntax.Patterns(l, r.Code)
	}
	check := syntax.Checker{Service: f.Service, Create: c, Callbacks: w}
	d.Problems, err = check.Check(ctx, l, r.Code)
	if err == nil && r.FixImports && len(d.Problems) == 0 {
		d.Fixed, d.Imports, err = check.FixImports(ctx, l, r.Code)
	}
	return d, sandboxes.Explained(err)
}

// program executes code with the language's interpreter.
func (f *Sessions) program(ctx context.Context, o code.Options, r code.Request, w session.Callbacks) (*code.Result, error) {
	if len(o.Language.Run) == 0 {
		return nil, fmt.Errorf("no program runs %s: list_runtimes says what an image has", o.Language.Name)
	}
	if len(o.Dependencies) > 0 {
		return nil, fmt.Errorf("dependencies: not for %s without a session", o.Language.Name)
	}
	run := session.RunOptions{Stdin: r.Code, Shown: r.Run.Shown, Command: runner.Command{
		Argv: append([]string{"/bin/sh", "-c", runProgram, "sh", "code" + o.Language.Extensions[0]}, commands(o.Language)...),
		Dir:  workDir, Timeout: r.Run.Command.Timeout,
	}}
	done, err := f.Service.Run(ctx, o.Create, run, w)
	if err != nil {
		return nil, sandboxes.Explained(err)
	}
	return ranProgram(done, r.Run.Command.Timeout), nil
}

// runProgram stores stdin in a file and runs it with the first command whose program exists. Its arguments are the name of
// the file and commands, each of them one argument with the words separated by spaces.
const runProgram = `dir=$(mktemp -d) && cat > "$dir/$1" || exit 126
file=$dir/$1; shift
for command; do
  if command -v "${command%% *}" > /dev/null; then
    exec $command "$file" < /dev/null
  fi
done
echo "the image has none of: $*" >&2
exit 127`

func commands(l languages.Language) (all []string) {
	for _, run := range l.Run {
		all = append(all, strings.Join(run, " "))
	}
	return all
}

// ranProgram converts the result of a program.
func ranProgram(done *session.RunResult, limit time.Duration) *code.Result {
	d := &code.Result{Stdout: done.Stdout, Stderr: done.Stderr, ExitCode: &done.ExitCode, OutputDir: done.OutputDir}
	for _, one := range done.Denied {
		d.Denied = append(d.Denied, one.String())
	}
	switch {
	case done.Reason == runner.TimedOut:
		d.Failed, d.TimedOut, d.Type, d.Message = true, true, "TimeoutError", fmt.Sprintf("killed after %s", limit)
		d.Hint = "split the work, or pass a longer timeout"
	case done.Reason != runner.Exited:
		d.Failed, d.Type, d.Message = true, string(done.Reason), done.Detail
	case done.ExitCode != 0:
		d.Failed, d.Type, d.Message = true, "ExitStatus", fmt.Sprintf("the program ended with exit code %d", done.ExitCode)
	}
	return d
}
