package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"demesne/agents"
	"demesne/integration/fixture"
)

func init() { helpers["agent"] = agentHelper }

// agentPlan is what agentHelper runs in a sandbox.
type agentPlan struct {
	Launch agents.Launch
	Resume []string // with "SESSION" for the id of the session
	Format string   // of the program's output
	NoMCP  bool     // the program has no client of MCP servers
}

// agentRun is what happened.
type agentRun struct {
	Codes    []int // exit codes: of the first run, and of each time that it was resumed
	Sessions []string
	Requests []fixture.ModelRequest
	Noted    []string // arguments of calls of the MCP server's tool
}

// programsDir is where agents.sh installed the agents' programs.
func programsDir() string { return cmp.Or(os.Getenv("DEMESNE_AGENTS"), "/var/tmp/demesne-agents") }

// programsPath is a PATH with these programs.
func programsPath() string {
	dir := programsDir()
	return dir + "/node_modules/.bin:" + dir + "/global/bin:" + dir + "/editors/node_modules/.bin:" + os.Getenv("PATH")
}

// agentOf chooses the agent of a model on a host that has every key.
func agentOf(t testing.TB, model string) *agents.Agent {
	t.Helper()
	env := map[string]string{"PATH": programsPath(), "OPENAI_API_KEY": "real-key", "ANTHROPIC_API_KEY": "real-key", "GEMINI_API_KEY": "real-key"}
	c, err := agents.Open(agents.Options{Env: func(k string) string { return env[k] }, Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Choose("test", model)
	if errors.Is(err, agents.ErrNoProgram) {
		need(t, false, "integration/agents.sh: "+err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAgentPrograms runs the real programs by their plans, against a scripted model on the loopback of the sandbox:
// turns that run a command and call an MCP server, then the same session again, which a rate limit interrupts once.
func TestAgentPrograms(t *testing.T) {
	for _, model := range []string{"gpt-5.6-sol", "gpt-5.5", "sonnet", "opencode/scripted", "gemini-2.5-flash", "qwen/scripted", "copilot/scripted", "pi/scripted"} {
		t.Run(strings.ReplaceAll(model, "/", "-"), func(t *testing.T) { testAgentProgram(t, model) })
	}
}

func testAgentProgram(t *testing.T, model string) {
	b, a := newBox(t), agentOf(t, model)
	task := agents.Task{Prompt: "-make the file", Dir: `/workspace/.demesne/a job`, Egress: "none",
		Servers: []agents.Server{{Name: "demesne", Port: 8089, Path: "/mcp"}}}
	l := a.Headless(task)
	_, err := os.Stat(programsDir() + "/node_modules") // without it, a launch looks for the program in the image
	need(t, err == nil, "integration/agents.sh")
	resume, err := a.Resume(task, "SESSION")
	if err != nil {
		t.Fatal(err)
	}
	noMCP := a.Provider.Servers.Entry == ""
	run, out := b.agent(agentPlan{*l, resume, a.Format(), noMCP})
	if run.Codes[0] != 0 || len(run.Sessions) == 0 || run.Codes[len(run.Codes)-1] != 0 {
		t.Errorf("exit codes %v, sessions %q", run.Codes, run.Sessions)
	}
	for _, s := range run.Sessions {
		if s != run.Sessions[0] {
			t.Errorf("sessions %q", run.Sessions)
		}
	}
	if made, _ := os.ReadFile(out + "/made"); string(made) != "made by 0 in "+task.Dir+"\n" {
		t.Errorf("made %q", made)
	}
	if !noMCP && !slices.Contains(run.Noted, "from the model") {
		for _, r := range run.Requests {
			t.Logf("%s %s offers %q, results %.300q", r.Method, r.Path, r.Tools, r.Results)
		}
		t.Errorf("the MCP server was called with %q", run.Noted)
	}
	checkRequests(t, l, run.Requests)
}

// checkRequests checks that the program made only requests that its route allows, with the token of the sandbox, and
// that it read the context file.
func checkRequests(t *testing.T, l *agents.Launch, requests []fixture.ModelRequest) {
	t.Helper()
	read := false
	for _, r := range requests {
		if r.Method == http.MethodHead {
			continue // harmless, and refused by the route
		}
		if !slices.Contains(l.Routes[0].Allow, r.Method+" "+r.Path) {
			t.Errorf("request %s %s is not in %q", r.Method, r.Path, l.Routes[0].Allow)
		}
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key")
		if key != l.Token {
			t.Errorf("%s %s with the key %q", r.Method, r.Path, key)
		}
		read = read || bytes.Contains(r.Body, []byte("the only place whose files remain"))
	}
	if !read {
		t.Errorf("no request has the context file; there were %d", len(requests))
	}
}

// agent runs a plan in a sandbox.
func (b *box) agent(plan agentPlan) (run agentRun, out string) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	out = b.mkdir("out")
	config := b.mkdir("config")
	for name, data := range plan.Launch.Config {
		b.file("config/"+name, string(data), 0o644)
	}
	args := []string{"run", "--memory", "6g", "--pids", "2000", "--out", out, "--in", self + ":self", "--in", config + ":.agent"}
	for _, m := range plan.Launch.Mounts {
		args = append(args, "--mount", m.Source+":"+m.Target)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		b.Fatal(err)
	}
	args = append(args, "--in", b.file("plan.json", string(text), 0o644), "--", "/in/self", "helper:agent")
	if r := b.demesne(args...); r.code != 0 {
		b.Fatalf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	data, err := os.ReadFile(out + "/run.json")
	if err == nil {
		err = json.Unmarshal(data, &run)
	}
	if err != nil {
		b.Fatal(err)
	}
	if b.Failed() {
		return run, out
	}
	b.Cleanup(func() {
		if b.Failed() {
			for _, name := range []string{"stdout", "stderr"} {
				data, _ := os.ReadFile(out + "/" + name)
				b.Logf("%s:\n%.8000s", name, data)
			}
		}
	})
	return run, out
}

// agentHelper runs in the sandbox: it seeds the home, serves the model, and runs the program until it succeeded twice.
func agentHelper([]string) int {
	if err := agentInside(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func agentInside() error {
	var plan agentPlan
	data, err := os.ReadFile("/in/plan.json")
	if err == nil {
		err = json.Unmarshal(data, &plan)
	}
	if err != nil {
		return err
	}
	if err := agentHome(&plan.Launch); err != nil {
		return err
	}
	work := fixture.Steps(
		fixture.Answer{Calls: []fixture.ToolCall{{Run: "{ echo made by; id -u; echo in $PWD; } | xargs > /out/made"}}},
		fixture.Answer{Calls: []fixture.ToolCall{{Name: "sandbox_note", Input: map[string]any{"text": "from the model"}}}},
		fixture.Answer{Text: "all done"})
	if plan.NoMCP {
		work = fixture.Steps(work(fixture.ModelRequest{}), fixture.Answer{Text: "all done"})
	}
	var run agentRun
	model, notes := &fixture.Model{Script: work}, &noteServer{}
	for port, h := range map[uint16]http.Handler{plan.Launch.Routes[0].Port: model, 8089: notes} {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		go http.Serve(listener, h)
	}
	execute := func(argv []string, env ...string) error {
		code, session, err := agentExecute(&plan, argv, env)
		run.Codes, run.Sessions = append(run.Codes, code), append(run.Sessions, session)
		return err
	}
	if err := execute(plan.Launch.Argv); err != nil {
		return err
	}
	for i, word := range plan.Resume {
		plan.Resume[i] = strings.ReplaceAll(word, "SESSION", run.Sessions[0])
	}
	limited := false
	model.Script = func(r fixture.ModelRequest) fixture.Answer {
		if !limited {
			limited = true
			return fixture.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}
		}
		return work(r)
	}
	for range 3 {
		if err := execute(plan.Resume, startedOnce...); err != nil {
			return err
		}
		if run.Codes[len(run.Codes)-1] == 0 {
			break
		}
	}
	run.Requests, run.Noted = model.Log(), notes.texts()
	data, err = json.Marshal(run)
	if err != nil {
		return err
	}
	return os.WriteFile("/out/run.json", data, 0o644)
}

// startedOnce keeps two programs from starting themselves again, which only makes their heap larger. The first run of each
// is as users have it; this halves the work of the second.
var startedOnce = []string{"GEMINI_CLI_NO_RELAUNCH=true", "QWEN_CODE_NO_RELAUNCH=true"}

// noteServer is an MCP server with one tool, over streamable HTTP without streams or sessions.
type noteServer struct {
	mu    sync.Mutex
	noted []string
}

func (n *noteServer) texts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.noted
}

func (n *noteServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ProtocolVersion string
			Arguments       struct{ Text string }
		}
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&call) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	type object = map[string]any
	answer := object{"jsonrpc": "2.0", "id": call.ID}
	switch call.Method {
	case "initialize":
		answer["result"] = object{"protocolVersion": call.Params.ProtocolVersion, "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": "notes", "version": "1"}}
	case "tools/list":
		schema := object{"type": "object", "properties": object{"text": object{"type": "string"}}}
		answer["result"] = object{"tools": []object{{"name": "sandbox_note", "description": "Takes a note.", "inputSchema": schema}}}
	case "tools/call":
		n.mu.Lock()
		n.noted = append(n.noted, call.Params.Arguments.Text)
		n.mu.Unlock()
		answer["result"] = object{"content": []object{{"type": "text", "text": "noted"}}}
	default:
		if call.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer["error"] = object{"code": -32601, "message": "method not found"}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// agentHome makes the home and the directory of a run.
func agentHome(l *agents.Launch) error {
	for _, dir := range []string{l.HomeDir, l.Dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(agents.ConfigDir+"/"+l.Context, filepath.Join(l.Dir, l.Context)); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.HomeDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return l.Seed(root)
}

// agentExecute runs the program once with more variables, and returns its exit code and the id of its session.
func agentExecute(plan *agentPlan, argv, env []string) (code int, session string, err error) {
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = plan.Launch.Dir, slices.Concat(os.Environ(), plan.Launch.Env, env), &out
	errs, err := os.OpenFile("/out/stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, "", err
	}
	defer errs.Close()
	cmd.Stderr = errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 0, "", err
	}
	stdout, err := os.OpenFile("/out/stdout", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = stdout.Write(out.Bytes())
		stdout.Close()
	}
	said := agents.NewTranscript(plan.Format, nil)
	said.Write(out.Bytes())
	said.Close()
	if code = cmd.ProcessState.ExitCode(); code == 0 && (!said.Ended() || !strings.HasSuffix(said.Final(), "all done")) {
		code = 1 // as a run without a result
	}
	return code, said.Session(), err
}
