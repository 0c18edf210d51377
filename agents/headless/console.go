package headless

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"demesne/agents"
	"demesne/agents/agentcmd"
	"demesne/agents/tree"
	"demesne/agents/workspace"
	"demesne/internal/cmdline"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/mcp"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
	"demesne/session/places"
)

// console is the program's environment.
type console struct{ cmdline.Console }

// main runs one command line and returns the exit code.
func (f *console) main(args []string) int {
	verbs := map[string]func([]string) (int, error){
		"run":        func(args []string) (int, error) { return f.run(args, false) },
		"research":   func(args []string) (int, error) { return f.run(args, true) },
		"attend-job": f.attend,
		"request":    f.request,
		"post":       f.post,
	}
	p := program()
	if text, ok := p.Answer(args); ok {
		io.WriteString(f.Stdout, text)
		return 0
	}
	if len(args) == 0 || verbs[args[0]] == nil {
		io.WriteString(f.Stderr, p.Listing(cmdline.Terminal{}.Width()))
		return 2
	}
	code, err := verbs[args[0]](args[1:])
	if err != nil {
		cmdline.Report(f.Stderr, map[string]string{"run": "agent run", "research": "research"}[args[0]], err)
		return max(code, tree.ExitFailed)
	}
	return code
}

// program describes the command line of a program that users do not start themselves.
func program() *cmdline.Program {
	return &cmdline.Program{Name: "demesne-frontend agent", Summary: "run coding agents in sandboxes",
		About: "Runs coding agents in sandboxes. demesne agent, demesne research and the MCP server start it."}
}

// stored is a job of this program on disk. Jobs of the MCP server have only the request.
type stored struct {
	agents.Request
	Out   string   `json:",omitempty"` // see agentcmd.Options
	Files []string `json:",omitempty"` // inputs that become agents.Request's on the machine of the job
}

// resolve finds the paths of a command line.
func (j *stored) resolve() (err error) {
	if j.Inputs, err = session.ParseInputs(j.Files, nil); err != nil {
		return err
	}
	j.Files = nil
	if j.Out != "" {
		if j.Out, err = absolute(j.Out); err != nil {
			return err
		}
	}
	if j.Workspace != "" {
		j.Workspace, err = absolute(j.Workspace)
	}
	return err
}

// run runs an agent for a person.
func (f *console) run(args []string, research bool) (int, error) {
	o := &agentcmd.Options{}
	line := o.Command(research)
	rest, err := line.Parse(args)
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		_, err := io.WriteString(f.Stdout, line.Help(cmdline.TerminalOf(os.Stdout, os.LookupEnv).Width()))
		return 0, err
	case err != nil:
		return 0, err
	case len(rest) > 1:
		return 0, text.Hinted(fmt.Errorf("unexpected argument %q", rest[1]), "put the prompt into quotes")
	case len(rest) == 0 || strings.TrimSpace(rest[0]) == "":
		return 0, text.Hinted(errors.New("prompt is required"), "demesne %s --help shows examples", line.Name)
	}
	job := stored{o.Request, o.Out, o.Inputs}
	job.Prompt, job.Research = rest[0], research
	if job.Script != "" && job.Model != "" {
		return 0, errors.New("--script: cannot be combined with --model, as no model is asked")
	}
	if !places.Remote(o.On) {
		if err := job.resolve(); err != nil {
			return 0, err
		}
	}
	if o.Continue != "" {
		if job.Request, err = follow(o, job.Request); err != nil {
			return 0, err
		}
	}
	switch {
	case o.On != "" && o.JSON:
		return 0, errors.New("--on: cannot be combined with --json")
	case o.On != "" || o.Background:
		return f.start(job, o)
	}
	ctx := procself.Ending()
	v := newView(f.Stdout, f.Stderr, o.JSON, cmdline.TerminalOf(f.Stderr, f.Env))
	res, err := f.do(ctx, runner.FrontendCLI, job, "", v.show)
	if s, ok := errors.AsType[procself.Ended](context.Cause(ctx)); ok {
		return 128 + int(s), nil
	}
	if res == nil {
		return 0, err
	}
	if err == nil && !o.JSON {
		v.answer(res)
	}
	return res.Result.ExitCode, err
}

// follow returns the request of a follow-up.
func follow(o *agentcmd.Options, r agents.Request) (agents.Request, error) {
	if o.Out != "" || o.On != "" {
		return r, errors.New("--continue: cannot be combined with --out or --on: a follow-up runs where the conversation is")
	}
	s := session.New(session.Options{})
	defer s.Close()
	r, err := agents.FollowUp(s, o.Continue, true, r)
	if err != nil {
		err = fmt.Errorf("--continue: %w", err)
	}
	return r, err
}

// start starts a job. In the background it prints its id; otherwise it copies the output, and a signal cancels the job.
func (f *console) start(job stored, o *agentcmd.Options) (int, error) {
	names, err := f.checkStart(job, o.On)
	if err != nil {
		return 0, err
	}
	argv, err := client.FindFrontend("agent")
	if err != nil {
		return 0, err
	}
	s := session.New(session.Options{})
	defer s.Close()
	store, err := s.Jobs()
	if err != nil {
		return 0, err
	}
	ctx := procself.Ending()
	j, err := places.Start(ctx, store, o.On, append(argv, "attend-job"), names, places.Needs{Memory: max(job.Limits.Memory, 0), Time: job.Timeout}, job)
	if err != nil {
		return 0, err
	}
	if o.Background {
		_, err = fmt.Fprintln(f.Stdout, j.ID)
		return 0, err
	}
	if j, err = store.Follow(ctx, j.ID, runner.JobKept, f.Stdout, f.Stderr); err != nil {
		return 0, err
	}
	if s, ok := errors.AsType[procself.Ended](context.Cause(ctx)); ok {
		_, err = store.Cancel(context.WithoutCancel(ctx), j.ID)
		return 128 + int(s), err
	}
	if j.Result == nil {
		return 0, fmt.Errorf("job %q: %s: %s", j.ID, j.Status, j.Message)
	}
	return j.Result.ExitCode, nil
}

// checkStart refuses a job that could not run. It returns the names of variables that the job needs. A machine that does not see this
// one's files has agents, credentials and rules of its own.
func (f *console) checkStart(job stored, on string) (names []string, err error) {
	if places.Remote(on) {
		_, err := f.research(job)
		return nil, err
	}
	catalog, err := f.catalog()
	if err != nil {
		return nil, err
	}
	agent, err := chooser(catalog, runner.FrontendCLI)(job.Request.Tool(), job.Request)
	if err != nil {
		return nil, err
	}
	if _, err := workspace.Open(job.Workspace, ""); err != nil {
		return nil, err
	}
	names = []string{mcp.VarResearch, varAllowlist}
	if on == "" {
		return names, nil
	}
	of, err := catalog.Elsewhere(agent)
	if err != nil {
		return nil, fmt.Errorf("--on: %w", err)
	}
	return append(names, of...), nil
}

// research returns the operator's rule for research, and refuses a job that it forbids.
func (f *console) research(job stored) (mcp.Research, error) {
	research, err := mcp.ParseResearch(f.Getenv(mcp.VarResearch))
	if err == nil && job.Research && research == mcp.ResearchOff {
		err = mcp.ErrNoResearch
	}
	return research, err
}

// attend is the main function of a job's process.
func (f *console) attend(args []string) (int, error) {
	if len(args) == 2 && args[0] == places.RemoteWord {
		return places.AttendRemote(context.Background(), args[1], f.Stdout, func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
			var job stored
			err := json.Unmarshal(what, &job)
			if err == nil {
				err = job.resolve()
			}
			if err != nil {
				return nil, fmt.Errorf("read job: %w", err)
			}
			return f.report(ctx, runner.FrontendCLI, job, "", out, errs)
		})
	}
	if len(args) != 1 {
		return 0, errors.New("needs the id of a job")
	}
	s := session.New(session.Options{})
	store, err := s.Jobs()
	s.Close()
	if err != nil {
		return 0, err
	}
	store.Place = places.Of
	j, err := store.Get(args[0])
	if err != nil {
		return 0, err
	}
	return 0, store.Attend(context.Background(), args[0], runner.JobKept, func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
		var job stored
		if err := json.Unmarshal(what, &job); err != nil {
			return nil, fmt.Errorf("read job: %w", err)
		}
		if j.On != "" {
			allocation, leave, err := places.SettleIn(f.Getenv)
			if err != nil {
				return nil, err
			}
			defer leave()
			job.Limits = job.Limits.Over(allocation)
		}
		return f.report(ctx, j.Frontend, job, s.DirectoryOf(j), out, errs)
	})
}

// report is do with the output of a job.
func (f *console) report(ctx context.Context, front runner.Frontend, job stored, dir string, out, errs io.Writer) (*runner.Result, error) {
	v := newView(out, errs, false, cmdline.Terminal{})
	res, err := f.do(ctx, front, job, dir, v.show)
	if res == nil {
		return nil, err
	}
	if err == nil {
		v.answer(res)
	}
	return res.Result, err
}

// request runs the agent of one line on stdin, and prints events until its result. args has the namespace of the caller,
// or an empty word.
func (f *console) request(args []string) (int, error) {
	front := runner.FrontendMCP
	if len(args) == 1 && args[0] != "" {
		front = runner.FrontendOf(args[0])
	}
	in := bufio.NewReader(f.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 0, fmt.Errorf("read request: %w", err)
	}
	var job stored
	if err := json.Unmarshal(line, &job); err != nil {
		return 0, fmt.Errorf("read request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(procself.Ending())
	go func() {
		io.Copy(io.Discard, in)
		cancel(errors.New("the caller has closed its end"))
	}()
	var mu sync.Mutex
	out := json.NewEncoder(f.Stdout)
	say := func(e agents.Message) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(e)
	}
	res, err := f.do(ctx, front, job, "", func(n tree.Notice) {
		if s := progress(n); s != "" {
			say(agents.Message{Progress: s})
		}
	})
	if err != nil {
		say(agents.Message{Error: err.Error(), Hint: text.HintOf(err)})
		return tree.ExitFailed, nil
	}
	say(agents.Message{Result: res})
	return 0, nil
}

// catalog opens the table of agents.
func (f *console) catalog() (*agents.Catalog, error) {
	return agents.Open(agents.Options{Env: f.Getenv, Post: post})
}

// chooser returns the function that finds the agent of a request. Its errors name the command of a person at the command
// line, or the tool.
func chooser(catalog *agents.Catalog, front runner.Frontend) func(tool string, r agents.Request) (*agents.Agent, error) {
	command := map[string]string{agents.ToolAgent: "demesne agent run", agents.ToolResearch: "demesne research"}
	return func(tool string, r agents.Request) (*agents.Agent, error) {
		if front == runner.FrontendCLI {
			tool = command[tool]
		}
		if r.Script != "" {
			return catalog.In(r.Image).Scripted(r.Script)
		}
		a, err := catalog.In(r.Image).Choose(tool, r.Model)
		if errors.Is(err, agents.ErrNoProgram) && front == runner.FrontendCLI {
			err = text.Hinted(err, agentcmd.ProgramHint)
		}
		return a, err
	}
}

// checkNames refuses inputs whose names an agent's sandbox needs itself.
func checkNames(inputs []runner.Input) error {
	for _, in := range inputs {
		if in.Name == path.Base(agents.ConfigDir) || in.Name == path.Base(tree.PreviousDir) {
			return text.Hinted(fmt.Errorf("input %q: the agent's sandbox has /in/%s already", in.Path, in.Name), "use PATH:NAME to rename it")
		}
	}
	return nil
}

// do runs an agent to its end. dir is the name of its directory; empty: a new one.
func (f *console) do(ctx context.Context, front runner.Frontend, job stored, dir string, show func(tree.Notice)) (*agents.Result, error) {
	catalog, err := f.catalog()
	if err != nil {
		return nil, err
	}
	research, err := f.research(job)
	if err != nil {
		return nil, err
	}
	if err := checkNames(job.Inputs); err != nil {
		return nil, err
	}
	o := session.Options{}
	o.Runner.Frontend = front
	s := session.New(o)
	defer s.Close()
	if job.Dir != "" {
		dir = job.Dir
	}
	d, err := s.NewDirectory(dir)
	if err != nil {
		return nil, err
	}
	t := &tree.Tree{
		Sessions: s, Choose: chooser(catalog, front), Research: research, Show: show, Serve: nested(f.Getenv, catalog, front.Namespace()),
		AllowResearch: job.AllowResearch, Private: len(job.Inputs) > 0 || job.Workspace != "" || job.Out != "",
	}
	t.Tools = readHostTools(f.Getenv, catalog, func(line string) {
		if show != nil {
			show(tree.Notice{Time: time.Now(), Event: agents.Event{Kind: tree.NoticeNote, Text: text.SafeLine(line)}})
		}
	})
	return t.Run(ctx, job.Request, d, job.Out)
}

// post is the verb for demesne, which does not link net/http: it sends stdin to a URL, and prints the status on a line
// before the response.
func (f *console) post(args []string) (int, error) {
	if len(args) != 1 {
		return 0, errors.New("needs one URL")
	}
	body, err := io.ReadAll(io.LimitReader(f.Stdin, maxPost))
	if err != nil {
		return 0, fmt.Errorf("read body: %w", err)
	}
	status, response, err := post(context.Background(), args[0], body)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(f.Stdout, "%d\n%s", status, response)
	return 0, err
}

func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("output %q: %w", path, err)
	}
	return abs, nil
}
