package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/agents"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
	"demesne/session"
	"demesne/session/operator"
)

var update = flag.Bool("update", false, "write the golden files")

// desk is a Backend that records requests and returns fixed answers. The tests of this package cover the protocol, and package
// integration's the sandboxes.
type desk struct {
	mu     sync.Mutex
	asked  []session.Request
	agents []agents.Request
	hold   chan struct{} // if not nil, Script returns after it is closed
	fail   error
	jobs   map[string]*session.Job
	files  *files.Answer
	told   func()

	result  *session.RunResult // of Script and Exec, if not nil
	listing *session.Listing
	forked  []string
	copied  []string
}

func (d *desk) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	d.mu.Lock()
	d.asked = append(d.asked, r)
	d.mu.Unlock()
	w.Progress("running")
	w.Began(func() session.Tail { return session.Tail{Text: "half\n", Bytes: 5} })
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if d.fail != nil {
		return nil, d.fail
	}
	if d.result != nil {
		return d.result, nil
	}
	return &session.RunResult{
		Job: "u-1", OutputDir: "/o/u-1", Stdout: session.Tail{Text: "hi\n", Bytes: 3}, Stderr: session.Tail{Text: "oops", Bytes: 4},
		Result: &runner.Result{ExitCode: 3, Reason: runner.Exited, Receipt: &runner.Receipt{Level: runner.LevelFull, Image: "host", Network: "none"}},
	}, nil
}

// seen returns the requests so far.
func (d *desk) seen() []session.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *desk) Exec(ctx context.Context, id string, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	return d.Script(ctx, r, w)
}

func (d *desk) Start(context.Context, session.Request) (*session.Job, error) {
	return &session.Job{Job: jobs.Job{ID: "job-1", Status: jobs.Running}}, nil
}

// moves holds a copy that has moved 2 files.
func (d *desk) moves(ctx context.Context, w session.Callbacks) {
	w.Moves(func() (int64, int64) { return 2, 1500 })
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-ctx.Done():
		}
	}
}

func (d *desk) Create(_ context.Context, r session.Request, _ session.Callbacks) (*session.Created, error) {
	d.asked = append(d.asked, r)
	return &session.Created{ID: "s1", OutputDir: "/o/s1", Told: d.told}, d.fail
}
func (d *desk) Upload(ctx context.Context, _, _, dst string, w session.Callbacks) (session.Copied, error) {
	d.moves(ctx, w)
	return session.Copied{Path: dst, Report: tarball.Report{Files: 1}}, d.fail
}
func (d *desk) Download(ctx context.Context, _, _ string, w session.Callbacks) (session.Copied, error) {
	d.moves(ctx, w)
	did := tarball.Report{Files: 2, Bytes: 7, LeftAll: 3, Left: []tarball.LeftOut{{Path: "x/l", Kind: "a link"}, {Path: "x/p", Kind: "a named pipe"}}}
	return session.Copied{Path: "/o/downloads/x", Report: did}, d.fail
}
func (d *desk) List(context.Context) (*session.Listing, error) { return d.listing, d.fail }
func (d *desk) Fork(_ context.Context, id, name string) (*session.Created, error) {
	d.forked = append(d.forked, id, name)
	return &session.Created{ID: "f1", OutputDir: "/o/f1", Told: d.told}, d.fail
}
func (d *desk) ChangeLimits(context.Context, string, runner.Limits) error { return d.fail }
func (d *desk) CopyBetween(ctx context.Context, id, src, to, dst string, w session.Callbacks) (session.Copied, error) {
	d.moves(ctx, w)
	d.copied = append(d.copied, id, src, to, dst)
	return session.Copied{Path: dst, Report: tarball.Report{Files: 1}}, d.fail
}
func (d *desk) Destroy(context.Context, string) error { return d.fail }
func (d *desk) Files(_ context.Context, _ string, r files.Request) (*files.Answer, error) {
	return d.files, d.fail
}

func (d *desk) Status(_ context.Context, id string) (*session.Job, error) {
	if j := d.jobs[id]; j != nil {
		return j, nil
	}
	return nil, session.ErrNoJob
}
func (d *desk) Wait(ctx context.Context, id string, _ time.Duration) (*session.Job, error) {
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Status(ctx, id)
}
func (d *desk) Agent(ctx context.Context, r agents.Request, w session.Callbacks) (*agents.Result, error) {
	d.agents = append(d.agents, r)
	o, err := d.Script(ctx, session.Request{}, w)
	if err != nil {
		return nil, err
	}
	return &agents.Result{RunResult: *o, Cost: session.Cost{
		Own: 0.5, Total: 0.75, Summary: "1 model", PerModel: map[string]session.Tokens{"sonnet": {Input: 1, Output: 2, CacheCreation: 3, CacheRead: 4}},
	}}, nil
}
func (d *desk) StartAgent(_ context.Context, r agents.Request) (*session.Job, error) {
	d.agents = append(d.agents, r)
	return &session.Job{Job: jobs.Job{ID: "job-2", Status: jobs.Running}}, d.fail
}
func (d *desk) Usage(_ context.Context, job, dir string) (*agents.UsageReport, error) {
	return &agents.UsageReport{TotalCost: 0.75, Text: "total_cost_usd: 0.7500\n", ByModel: []agents.ModelUsage{{Model: "sonnet", Cost: 0.75}}}, d.fail
}

func (d *desk) Cancel(ctx context.Context, id string) (*session.Job, error) { return d.Status(ctx, id) }

// bounded returns a policy for models. Without bounds it has the widest ones.
func bounded(b session.Bounds) Policy {
	b.MaxTimeout, b.Max.PIDs = cmp.Or(b.MaxTimeout, runner.Longest), cmp.Or(b.Max.PIDs, 1<<15)
	p, err := operator.New(b, operator.Caller{Model: true})
	if err != nil {
		panic(err)
	}
	return p
}

// ruled is a policy with another decision about rules of the network.
type ruled struct {
	Policy
	rule func(words string) (use string, v operator.Verdict, err error)
}

func (r ruled) Rule(_, words string) (use string, v operator.Verdict, err error) {
	return r.rule(words)
}

func serverFor(t *testing.T, d *desk, change ...func(*Options)) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	m, err := NewMounts(root)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Version: "1", Mounts: m, Images: []string{"host", "python"}, Image: "host", Egress: []string{"none", "package-managers"}, Heartbeat: 5 * time.Millisecond, Policy: bounded(session.Bounds{})}
	for _, f := range change {
		f(&o)
	}
	return New(d, o), root
}

// client returns a real client, connected in memory.
func client(t *testing.T, s *Server, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	return clientOf(t, s, o, "")
}

// clientOf returns a client of a protocol version; "" is the newest.
func clientOf(t *testing.T, s *Server, o *sdk.ClientOptions, version string) *sdk.ClientSession {
	t.Helper()
	a, b := sdk.NewInMemoryTransports()
	ss, err := s.sdk.Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ss.Close() })
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), b, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

func callTool(t *testing.T, cs *sdk.ClientSession, name, arguments string) (text string, structured map[string]any, isError bool) {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	structured, _ = r.StructuredContent.(map[string]any)
	return r.Content[0].(*sdk.TextContent).Text, structured, r.IsError
}

// wholeText is callTool with all texts of the result, as a client shows them that shows nothing else.
func wholeText(t *testing.T, cs *sdk.ClientSession, name, arguments string) (text string, structured map[string]any, isError bool) {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range r.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			all = append(all, c.Text)
		}
	}
	structured, _ = r.StructuredContent.(map[string]any)
	return strings.Join(all, "\n"), structured, r.IsError
}

// TestToolList compares the published list, on which clients and models depend. It must change only on purpose.
func TestToolList(t *testing.T) {
	s := New(&desk{}, Options{Version: "1", Mounts: Mounts{roots: []string{"/srv"}}, Images: []string{"host", "python"}, Image: "host", Egress: []string{"none", "package-managers"}, Policy: bounded(session.Bounds{})})
	list, err := client(t, s, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(list.Tools, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "tools.json")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, append(got, '\n'), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("tools/list differs from %s; run with -update if that is meant", golden)
	}
}

// TestErrorTexts checks the text of results. Clients of the original demesne search for the text in each row.
func TestErrorTexts(t *testing.T) {
	s, root := serverFor(t, &desk{jobs: map[string]*session.Job{}})
	cs := client(t, s, nil)
	file := filepath.Join(root, "a.txt")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Mkdir(filepath.Join(root, "d"), 0o755), os.WriteFile(filepath.Join(root, "d", "a.txt"), nil, 0o644), os.Symlink("/etc", filepath.Join(root, "etc"))); err != nil {
		t.Fatal(err)
	}
	real, _ := filepath.EvalSymlinks(root)
	for _, c := range []struct{ tool, args, want string }{
		{"sandbox_script", `{}`, `required argument "command" not found`},
		{"sandbox_script", `{"command":7}`, `argument "command" is not a string`},
		{"sandbox_script", `{"command":" "}`, `command is required`},
		{"sandbox_script", `{"command":"x","egress":"open"}`, `egress 'open' is not permitted; use sandbox_research for unrestricted egress`},
		{"sandbox_script", `{"command":"x","egress":"zzz"}`, "egress mode \"zzz\" is not in the allowlist (none, package-managers, open)\nhint: allowed_domains names single hosts"},
		{"sandbox_script", `{"command":"x","image":"zzz"}`, "image \"zzz\" is not in the allowlist (host, python)\nhint: ask the user to add it to DEMESNE_ALLOWED_IMAGES"},
		{"sandbox_script", `{"command":"x","files":"a"}`, `files must be an array of strings`},
		{"sandbox_script", `{"command":"x","files":[1]}`, `files[0] is not a string`},
		{"sandbox_script", `{"command":"x","files":["a"]}`, `mount path must be absolute: a`},
		{"sandbox_script", `{"command":"x","files":[""]}`, `mount path is empty`},
		{"sandbox_script", `{"command":"x","files":["/etc/passwd"]}`, `mount path /etc/passwd is not within DEMESNE_ALLOWED_PATHS (` + "`" + real + "`)\nhint: " + outside{}.Hint()},
		{"sandbox_script", `{"command":"x","directories":["` + root + `/etc"]}`, `mount path ` + root + `/etc is not within DEMESNE_ALLOWED_PATHS (` + "`" + real + "`)\nhint: " + outside{}.Hint()},
		{"sandbox_script", `{"command":"x","files":["` + root + `/none"]}`, `resolve mount path ` + root + `/none: lstat ` + real + `/none: no such file or directory`},
		{"sandbox_script", `{"command":"x","files":["` + root + `/d"]}`, root + `/d is not a regular file`},
		{"sandbox_script", `{"command":"x","directories":["` + file + `"]}`, file + ` is not a directory`},
		{"sandbox_script", `{"command":"x","files":["` + file + `:same","` + root + `/d/a.txt:same"]}`, `mount name "same" would collide: ` + file + ` and ` + root + `/d/a.txt`},
		{"sandbox_upload", `{"sandbox_id":"s"}`, `sandbox_id, src, and dst are required`},
		{"sandbox_download", `{"sandbox_id":"s"}`, `sandbox_id and src are required`},
		{"sandbox_status", `{"job_id":"nope"}`, "job not found: nope\nhint: sandbox_list shows the jobs that this server knows"},
		{"sandbox_wait", `{"job_id":"nope"}`, "job not found: nope\nhint: sandbox_list shows the jobs that this server knows"},
		{"sandbox_cancel", `{"job_id":"nope"}`, "job not found: nope\nhint: sandbox_list shows the jobs that this server knows"},
		{"sandbox_script", `{"command":"x","limits":{"memory":-1}}`, `limits.memory must be a positive number of bytes, such as 536870912 for 512 MiB`},
		{"sandbox_script", `{"command":"x","limits":{"pids":"1e30"}}`, `limits.pids must be a positive number of processes`},
		{"sandbox_script", `{"command":"x","limits":{"memory":"100m"}}`, `limits.memory must be a positive number of bytes, such as 536870912 for 512 MiB`},
		{"sandbox_create", `{"limits":{"pids":[1]}}`, `limits.pids must be a positive number of processes`},
		{"sandbox_script", `{"command":"x","limits":{"Memory":1}}`, `limits: unknown member "Memory"; known: memory, cpus, pids, disk`},
		{"sandbox_create", `{"limits":{"memory":1,"timeout":"5"}}`, `limits: unknown member "timeout"; known: memory, cpus, pids, disk`},
		{"sandbox_create", `{"limits":{"memory_mb":null}}`, `limits: unknown member "memory_mb"; known: memory, cpus, pids, disk`},
		{"sandbox_create", `{"limits":"512m"}`, `limits must be an object`},
		{"sandbox_script", `{"command":"x","limits":{"cpus":"NaN"}}`, `limits.cpus must be a positive number of processors, such as 1.5`},
		{"sandbox_script", `[]`, `arguments must be an object`},
		{"sandbox_script", `"{}"`, `arguments must be an object`},
		{"sandbox_script", `{"command":"` + strings.Repeat("x", longestArg+1) + `"}`, `command is longer than 131071 bytes: pass long text on stdin or in a file`},
		{"sandbox_script", `{"command":"x","env":{"A":"` + strings.Repeat("x", longestArg) + `"}}`, `env "A" is longer than 131071 bytes`},
		{"sandbox_exec", `{"sandbox_id":"s","command":"x","cwd":"rel"}`, `cwd "rel" is not absolute`},
	} {
		if text, _, isError := callTool(t, cs, c.tool, c.args); text != c.want || !isError {
			t.Errorf("%s %s: %q (isError %v), want %q", c.tool, c.args, text, isError, c.want)
		}
	}
}

func TestTextForms(t *testing.T) {
	ended := time.Now().Add(-time.Hour)
	d := &desk{listing: &session.Listing{}, jobs: map[string]*session.Job{"job-1": {
		Job:     jobs.Job{ID: "job-1", Status: jobs.Succeeded, Started: ended.Add(-1500 * time.Millisecond), Ended: ended},
		Outcome: &session.RunResult{OutputDir: "/o", Result: &runner.Result{}, Stdout: session.Tail{Text: "out\n"}},
	}}}
	s, root := serverFor(t, d)
	cs := client(t, s, nil)
	if err := os.WriteFile(filepath.Join(root, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, want string }{
		{"sandbox_script", `{"command":"x"}`, "exit_code: 3\noutput_dir: /o/u-1\njob_id: u-1\n---\nhi\n---stderr---\noops"},
		{"sandbox_script", `{"command":"x","background":"true"}`, "job_id: job-1\nstatus: running"},
		{"sandbox_create", `{}`, "sandbox_id: s1\noutput_dir: /o/s1"},
		{"sandbox_exec", `{"sandbox_id":"s1","command":"x","unknown":1}`, "exit_code: 3\n---\nhi\n\n---stderr---\noops"},
		{"sandbox_list", `{}`, "no sandboxes\nno jobs\n"},
		{"sandbox_upload", `{"sandbox_id":"s1","src":"` + root + `/f","dst":"/x"}`, "uploaded: f -> /x"},
		{"sandbox_download", `{"sandbox_id":"s1","src":"/y"}`, "downloaded: /y -> /o/downloads/x\nskipped: x/l (a link), x/p (a named pipe), and 1 more"},
		{"sandbox_destroy", `{"sandbox_id":"s1"}`, "destroyed: s1"},
		{"sandbox_status", `{"job_id":"job-1","include_stdout_tail":true}`, "job_id: job-1\nstatus: succeeded\nelapsed_seconds: 1.5\n---stdout_tail---\nout\n"},
		{"sandbox_wait", `{"job_id":"job-1","timeout_seconds":"5"}`, "job_id: job-1\nstatus: succeeded\n---\nout\n"},
		{"sandbox_cancel", `{"job_id":"job-1"}`, "job_id: job-1\nstatus: succeeded"},
	} {
		if text, _, isError := callTool(t, cs, c.tool, c.args); text != c.want || isError {
			t.Errorf("%s %s: %q (isError %v), want %q", c.tool, c.args, text, isError, c.want)
		}
	}
}

// TestStructured checks that exit code 0 is present in a result. An absent field would mean that the exit code
// is unknown.
func TestStructured(t *testing.T) {
	s, _ := serverFor(t, &desk{jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Succeeded}, Outcome: &session.RunResult{Result: &runner.Result{}}}}})
	cs := client(t, s, nil)
	_, got, _ := callTool(t, cs, "sandbox_status", `{"job_id":"j"}`)
	if got["exit_code"] != 0.0 {
		t.Errorf("exit_code is %v", got["exit_code"])
	}
	_, got, _ = callTool(t, cs, "sandbox_script", `{"command":"x"}`)
	if got["exit_code"] != 3.0 || got["stdout"] != "hi\n" || got["stderr"] != "oops" {
		t.Errorf("script: %v", got)
	}
}

// TestLenience checks that an optional argument of the wrong type counts as absent.
func TestLenience(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d)
	cs := client(t, s, nil)
	callTool(t, cs, "sandbox_script", `{"command":"x","image":5,"egress":null,"timeout_seconds":"90","env":{"N":1,"B":true},"files":null}`)
	r := d.asked[0]
	if r.Create.Image.String() != "host" || r.Create.Egress.Mode != "package-managers" || r.Run.Command.Timeout != 90*time.Second || strings.Join(r.Run.Command.Env, " ") != "B=true N=1" {
		t.Errorf("request: %+v", r)
	}
	callTool(t, cs, "sandbox_create", `{}`)
	if d.asked[1].Create.Egress.Mode != "none" {
		t.Errorf("sandbox_create defaults to egress %q", d.asked[1].Create.Egress.Mode)
	}
}

func TestProgress(t *testing.T) {
	half := &session.RunResult{Stdout: session.Tail{Text: "half\n", Bytes: 5}}
	file := t.TempDir() + "/f"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounts, err := NewMounts(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for tool, c := range map[string]struct{ args, want string }{
		"sandbox_script": {`{"command":"x"}`, " elapsed: running (5 bytes of output)\nhalf\n"},
		"sandbox_exec":   {`{"command":"x","sandbox_id":"s"}`, " elapsed: running (5 bytes of output)\nhalf\n"},
		"sandbox_wait":   {`{"job_id":"j"}`, " elapsed (5 bytes of output)\nhalf\n"},

		"sandbox_upload":   {`{"sandbox_id":"s","src":"` + file + `","dst":"/d"}`, " elapsed: copied 1500 bytes, 2 files complete"},
		"sandbox_download": {`{"sandbox_id":"s","src":"/d"}`, " elapsed: copied 1500 bytes, 2 files complete"},
		"sandbox_copy":     {`{"sandbox_id":"s","src":"/d","to_sandbox_id":"t","dst":"/d"}`, " elapsed: copied 1500 bytes, 2 files complete"},
	} {
		d := &desk{hold: make(chan struct{}), jobs: map[string]*session.Job{"j": {Job: jobs.Job{ID: "j", Status: jobs.Running}, Outcome: half}}}
		s, _ := serverFor(t, d, func(o *Options) { o.Sets, o.Mounts = ToolSets(), mounts })
		var once sync.Once
		cs := client(t, s, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			if strings.HasSuffix(r.Params.Message, c.want) {
				once.Do(func() { close(d.hold) })
			}
		}})
		p := &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(c.args)}
		p.SetProgressToken("t1")
		if _, err := cs.CallTool(t.Context(), p); err != nil { // which ends only after such a message
			t.Fatal(tool, err)
		}
	}
}

// TestSignsOfLife checks that a call without a progress token also sends heartbeats. They are pings or, in a
// protocol without pings, messages if the call requested them.
func TestSignsOfLife(t *testing.T) {
	meta := func(more string) string {
		return `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}` + more + `}`
	}
	for _, c := range []struct {
		meta, want string
		nested     bool // the caller is an agent in a sandbox
	}{
		{meta: `{}`, want: `"method":"ping"`}, {meta: `{}`, want: ` elapsed: running (5 bytes of output)\nhalf\n","progress":`, nested: true},
		{meta: meta(`,"progressToken":7`), want: ` elapsed: running (5 bytes of output)\nhalf\n","progress":`, nested: true},
		{meta: meta(`,"io.modelcontextprotocol/logLevel":"info"`), want: ` elapsed: running (5 bytes of output)\nhalf\n","level":"info","logger":"demesne.call"}}`},
		{meta: meta(`,"io.modelcontextprotocol/logLevel":"error"`)}, {meta: meta(``)},
		{meta: meta(`,"progressToken":7`), want: ` elapsed: running (5 bytes of output)\nhalf\n","progress":`},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{hold: make(chan struct{})}
			s, _ := serverFor(t, d, func(o *Options) { o.Nested = c.nested })
			in, w := io.Pipe()
			var out writer
			done := make(chan error)
			go func() { done <- s.ServeStdio(t.Context(), in, &out) }()
			io.WriteString(w, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"x","name":"n"},"_meta":`+c.meta+`}}`+"\n")
			time.Sleep(5 * s.opts.Heartbeat) // of the fake clock
			close(d.hold)
			w.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if c.want == "" && len(lines) != 2 || !strings.Contains(out.String(), c.want) || !strings.Contains(out.String(), `"id":2`) {
				t.Errorf("%s: no %s in %d lines, the last\n%s", c.meta, c.want, len(lines), lines[len(lines)-1])
			}
		})
	}
}

// TestCancelled checks that a client that cancels a call ends everything that the call started.
func TestCancelled(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	cs := client(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(d.seen()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	if text, _, _ := callTool(t, cs, "sandbox_destroy", `{"sandbox_id":"s"}`); text != "destroyed: s" {
		t.Errorf("after a cancelled call: %q", text)
	}
}

// TestLogLevel checks that an unknown level is refused, and the previous one is kept.
func TestLogLevel(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	cs := clientOf(t, s, nil, "2025-11-25")
	for level, ok := range map[sdk.LoggingLevel]bool{"info": true, "emergency": true, "": false, "zzz": false, "INFO": false} {
		if err := cs.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: level}); (err == nil) != ok {
			t.Errorf("%q: %v", level, err)
		}
	}
}

// TestTimeDefault checks that a command without a time limit gets the longest.
func TestTimeDefault(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d)
	callTool(t, clientOf(t, s, nil, "2025-11-25"), "sandbox_script", `{"command":"x"}`)
	if r := d.seen(); len(r) != 1 || r[0].Run.Command.Timeout != 48*time.Hour || r[0].Run.Command.Dir != "/out" {
		t.Errorf("%+v", r)
	}
}
