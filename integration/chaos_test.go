package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// chaos is a machine on which all workloads run, while its processes are killed and its resources run out.
type chaos struct {
	*site
	busy     sync.WaitGroup // callers at work
	stop     atomic.Bool    // callers start nothing more
	tries    atomic.Int64   // workloads that ended
	complete atomic.Int64   // those that succeeded

	mu     sync.Mutex
	api    *apiServer
	jobs   map[string]string // id to what its command prints
	broken []string
}

// TestChaos mixes runs, sessions, jobs, pulls, builds, egress, agents, notebooks, MCP and the server. Meanwhile it kills the
// callers, runners, reapers, inits, proxies, image programs and the server, and takes away descriptors, disk, memory and
// processes. A workload succeeds with the whole result, or says that it failed. At the end each job has ended, the server answers,
// each workload succeeds and nothing is left. DEMESNE_SEED repeats the choices of an earlier run, though not its
// moments.
func TestChaos(t *testing.T) {
	onInternet(t, func(n *internet) {
		disk := n.mkdir("disk")
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=512m,mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
		t.Setenv("TMPDIR", disk)
		c := &chaos{site: newSite(t, newGallery(t)), jobs: map[string]string{}}
		c.keepsJobs()
		c.push("base:latest", v1.Config{Env: []string{"PATH=/bin"}}, c.busybox())
		c.serveAgain()
		seed := rand.Uint64()
		if s, err := strconv.ParseUint(os.Getenv("DEMESNE_SEED"), 10, 64); err == nil {
			seed = s
		}
		t.Logf("DEMESNE_SEED=%d", seed)
		for i := range uint64(3) {
			c.busy.Go(func() { c.work(rand.New(rand.NewPCG(seed, i))) })
		}
		c.inject(disk, rand.New(rand.NewPCG(seed, 99)))
		c.stop.Store(true)
		c.busy.Wait()
		t.Logf("%d workloads, %d of them successful", c.tries.Load(), c.complete.Load())
		c.recovers(t)
	})
}

// injections returns how many faults TestChaos injects.
func injections() int {
	if os.Getenv("DEMESNE_ROUNDS") == "" {
		return 12
	}
	return rounds()
}

// A fault is one disturbance. One with an action lasts until the function that it returns is called.
type fault struct {
	name   string
	victim string // name of a process to kill, as in /proc/PID/stat
	action func(c *chaos, disk string) (undo func())
}

var faults = []fault{
	{name: "a runner", victim: "demesne-runner"},
	{name: "a reaper", victim: "demesne-reaper"},
	{name: "an init", victim: "demesne-init"},
	{name: "a proxy", victim: "demesne-proxy"},
	{name: "a caller", victim: "demesne"},
	{name: "a frontend", victim: "demesne-fronten"}, // the kernel cuts names
	{name: "an image program", victim: "demesne-images"},
	{name: "descriptors", action: (*chaos).takeDescriptors},
	{name: "disk", action: (*chaos).takeDisk},
	{name: "processes", action: func(c *chaos, _ string) func() {
		return c.bomb("--pids", "30", "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done")
	}},
	{name: "memory", action: func(c *chaos, _ string) func() {
		return c.bomb("--memory", "30M", "x=$(head -c 200M /dev/zero | tr '\\0' x); echo held")
	}},
}

// inject causes faults at moments that rng chooses, until enough of them found a victim.
func (c *chaos) inject(disk string, rng *rand.Rand) {
	c.Helper()
	count := map[string]int{}
	for done := 0; done < injections() && !c.stop.Load(); {
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond) // the moment
		one := faults[rng.IntN(len(faults))]
		if one.action != nil {
			undo := one.action(c, disk)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // how long the resource is missing
			undo()
		} else {
			pids := living(one.victim)
			if len(pids) == 0 {
				continue
			}
			syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL)
		}
		count[one.name]++
		done++
	}
	c.Logf("faults: %v", count)
}

// living lists the descendants of the test with this name. It reaps no child, as [descendants] does: others wait for theirs.
func living(name string) (pids []int) {
	for _, p := range family(os.Getpid()) {
		if p.state != 'Z' && strings.HasSuffix(p.name, name) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// takeDescriptors leaves no descriptor to the runners that live now.
func (c *chaos) takeDescriptors(string) (undo func()) {
	was := map[int]unix.Rlimit{}
	for _, pid := range living("demesne-runner") {
		var old unix.Rlimit
		if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old) == nil {
			was[pid] = old
			unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: old.Max}, nil)
		}
	}
	return func() {
		for pid, old := range was {
			unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)
		}
	}
}

// takeDisk fills the file system of the box.
func (c *chaos) takeDisk(disk string) (undo func()) {
	path := disk + "/full"
	f, err := os.Create(path)
	if err != nil {
		return func() {}
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	return func() { os.Remove(path) }
}

// bomb runs a command that its own limit must end.
func (c *chaos) bomb(flag, value, script string) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r, err := c.call(nil, "run", flag, value, "--timeout", "10s", "--", "sh", "-c", script); err == nil && r.code == 0 {
			c.breaks("%s %s held nothing: %+v", flag, value, r)
		}
	}()
	return func() { <-done }
}

// breaks records that a promise was broken.
func (c *chaos) breaks(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// work runs workloads until the chaos stops.
func (c *chaos) work(rng *rand.Rand) {
	for !c.stop.Load() {
		w := workloads[rng.IntN(len(workloads))]
		v := w.run(c, strconv.Itoa(rng.IntN(1e9)))
		c.tries.Add(1)
		if text, err := os.ReadFile(c.store + "/index.json"); err == nil && !bytes.Contains(text, []byte("local/bb")) {
			c.breaks("the store lost an image, after %s: %s", w.name, text)
			c.stop.Store(true)
		}
		switch {
		case v == complete:
			c.complete.Add(1)
		case v.broken:
			c.breaks("%s: %s", w.name, v.why)
		}
	}
}

// A verdict says why a workload did not succeed: a fault stopped it and it said so, or a promise was broken.
type verdict struct {
	why    string
	broken bool
}

var complete = verdict{}

func excused(r any) verdict { return verdict{why: fmt.Sprintf("%.1000s", fmt.Sprintf("%+v", r))} }

func broken(format string, args ...any) verdict {
	return verdict{fmt.Sprintf("%.1000s", fmt.Sprintf(format, args...)), true}
}

// A workload is one way to use demesne. Its output has the token, which no other workload has.
type workload struct {
	name string
	run  func(c *chaos, token string) verdict
}

var workloads = []workload{
	{"exit code", func(c *chaos, token string) verdict {
		r, err := c.call(nil, "run", "--", "sh", "-c", "echo "+token+"; exit 7")
		return judge(r, err, 7, token+"\n")
	}},
	{"outputs", (*chaos).runOutputs},
	{"session", (*chaos).runSession},
	{"job", (*chaos).runJob},
	{"image", func(c *chaos, token string) verdict {
		r, err := c.call(nil, "run", "--image", "local/bb", "--", "sh", "-c", "echo "+token)
		return judge(r, err, 0, token+"\n")
	}},
	{"pull", func(c *chaos, token string) verdict {
		c.call(nil, "rmi", c.reg.Host+"/base")
		r, err := c.call(nil, "run", "--pull", "always", "--image", c.reg.Host+"/base", "--", "sh", "-c", "echo "+token)
		return judge(r, err, 0, token+"\n")
	}},
	{"build", (*chaos).runBuild},
	{"egress", func(c *chaos, _ string) verdict {
		r, err := c.call(nil, "run", "--allow-domain", "good.test", "--", "curl", "-sSf", "http://good.test/")
		if strings.Contains(r.stderr, "error: 403") {
			return broken("an allowed name is denied: %+v", r)
		}
		if err == nil && r.code > 0 && r.code < 100 && r.stderr != "" {
			return excused(r) // curl says that its connection broke
		}
		return judge(r, err, 0, "hello from good.test\n")
	}},
	{"agent", func(c *chaos, token string) verdict {
		r, err := c.call(nil, "agent", "run", "--egress", "none", "--script", "echo answer "+token, "task")
		v := judge(r, err, 0, r.stdout)
		if v == complete && !strings.Contains(r.stdout, "answer "+token) {
			return broken("the answer is lost: %+v", r)
		}
		return v
	}},
	{"MCP", (*chaos).runMCP},
	{"server", (*chaos).runServer},
}

// call runs the CLI until it ends or is killed.
func (c *chaos) call(stdin io.Reader, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "demesne"), args...)
	cmd.Env, cmd.Dir, cmd.Stdin = c.environ(), c.dir, stdin
	cmd.WaitDelay = time.Minute
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	code := -1
	if cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
	}
	return result{code, out.String(), errs.String()}, err
}

// judge checks a result: it is the whole of what the command does, or it is 125 with a reason, or the caller was killed. A
// command that died has no exit code of its own.
func judge(r result, err error, code int, stdout string) verdict {
	switch {
	case err != nil:
		return broken("does not end: %v: %+v", err, r)
	case strings.Contains(r.stderr, "goroutine "):
		return broken("crashed: %s", r.stderr)
	case r.code == code && r.stdout == stdout:
		return complete
	case r.code == code:
		return broken("success without the whole output %q: %+v", stdout, r)
	case r.code == 125 && r.stderr != "", r.code == 128+int(syscall.SIGKILL):
		return excused(r)
	}
	return broken("neither success nor a reason: %+v", r)
}

func (c *chaos) runOutputs(token string) verdict {
	r, err := c.call(nil, "run", "--json", "--", "sh", "-c", "set -e; echo "+token+" > /out/f")
	var p report
	json.Unmarshal([]byte(r.stdout), &p)
	if p.Stderr != "" && p.ExitCode > 0 && r.code == p.ExitCode {
		return excused(r) // the shell says that the disk is full
	}
	if v := judge(r, err, 0, r.stdout); v != complete {
		return v
	}
	if text, err := os.ReadFile(p.Out + "/f"); string(text) != token+"\n" {
		return broken("success without the output: %q %v: %+v", text, err, r)
	}
	os.RemoveAll(p.Out)
	return complete
}

func (c *chaos) runSession(token string) verdict {
	r, err := c.call(nil, "create", "--ttl", "5m")
	if v := judge(r, err, 0, r.stdout); v != complete {
		return v
	}
	id := strings.TrimSpace(r.stdout)
	defer c.call(nil, "rm", "--force", id)
	r, err = c.call(nil, "exec", id, "--", "sh", "-c", "set -e; echo "+token+" > /tmp/f; echo ok")
	if (r.code == 1 || r.code == 2) && r.stderr != "" {
		return excused(r) // a full disk
	}
	if v := judge(r, err, 0, "ok\n"); v != complete {
		return v
	}
	r, err = c.call(nil, "exec", id, "--", "cat", "/tmp/f")
	return judge(r, err, 0, token+"\n")
}

func (c *chaos) runJob(token string) verdict {
	r, err := c.call(nil, "run", "--background", "--", "sh", "-c", "echo "+token)
	v := judge(r, err, 0, r.stdout)
	if v == complete {
		c.mu.Lock()
		c.jobs[strings.TrimSpace(r.stdout)] = token + "\n"
		c.mu.Unlock()
	}
	return v
}

func (c *chaos) runBuild(token string) verdict {
	dir := filepath.Join(c.dir, "build-"+token)
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return excused(err) // a full disk
	}
	if err := os.WriteFile(dir+"/Containerfile", []byte("FROM local/bb\nRUN echo "+token+" > /token\n"), 0o644); err != nil {
		return excused(err)
	}
	r, err := c.call(nil, "build", "--egress", "none", dir)
	if r.code > 0 && r.code < 100 && r.stderr != "" {
		return excused(r) // a full disk, in RUN
	}
	if v := judge(r, err, 0, r.stdout); v != complete {
		return v
	}
	r, err = c.call(nil, "run", "--image", strings.TrimSpace(r.stdout), "--", "cat", "/token")
	return judge(r, err, 0, token+"\n")
}

func (c *chaos) runMCP(token string) verdict {
	in := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"chaos","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo %s","egress":"none"}}}
`, token)
	r, err := c.call(strings.NewReader(in), "mcp")
	if v := judge(r, err, 0, r.stdout); v != complete {
		return v
	}
	for line := range strings.Lines(r.stdout) {
		if !strings.Contains(line, `"id":2`) {
			continue
		}
		if strings.Contains(line, `"isError":true`) || strings.Contains(line, `"error":`) {
			return excused(line)
		}
		if !strings.Contains(line, token) {
			return broken("success without the output: %s", line)
		}
		return complete
	}
	return broken("no answer: %+v", r)
}

// runServer creates a sandbox by HTTP, and runs a command in it. A server that was killed is started again.
func (c *chaos) runServer(token string) verdict {
	c.mu.Lock()
	api := c.api
	c.mu.Unlock()
	ask := func(method, path, body string) (int, string) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, api.url+path, strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		req.Header.Set("Authorization", "Bearer "+api.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				c.breaks("the server does not answer %s %s", method, path)
			}
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(text)
	}
	status, text := ask("POST", "/v1/sandboxes", `{"image":"host","network":{"mode":"none"}}`)
	if status == 0 {
		c.serveAgain()
		return excused(text)
	}
	var made struct{ ID string }
	if json.Unmarshal([]byte(text), &made); status != 201 || made.ID == "" {
		if status < 400 || !strings.Contains(text, "message") {
			return broken("create: %d %s", status, text)
		}
		return excused(text)
	}
	defer ask("DELETE", "/v1/sandboxes/"+made.ID, "")
	status, text = ask("POST", "/v1/sandboxes/"+made.ID+"/exec", `{"command":"echo `+token+`"}`)
	var ran struct {
		ExitCode       int `json:"exit_code"`
		Reason, Stderr string
	}
	json.Unmarshal([]byte(text), &ran)
	switch {
	case status == 200 && strings.Contains(text, token):
		return complete
	case status == 200 && ran.Reason == "exited" && ran.ExitCode == 0:
		return broken("success without the output: %s", text)
	case status == 200 && ran.Reason == "exited" && ran.Stderr == "":
		return broken("neither success nor a reason: %s", text)
	}
	return excused(text)
}

// serveAgain starts the server in the place of one that was killed.
func (c *chaos) serveAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		if syscall.Kill(c.api.cmd.Process.Pid, 0) == nil && !dead(c.api.cmd.Process.Pid) {
			return
		}
		c.api.cmd.Wait()
	}
	c.api = c.serveAPI("--egress", "none")
}

// dead reports whether a child has ended, and was not waited for.
func dead(pid int) bool {
	for _, p := range processes() {
		if p.pid == pid {
			return p.state == 'Z'
		}
	}
	return true
}

// recovers checks what must hold after the last fault.
func (c *chaos) recovers(t *testing.T) {
	c.serveAgain()
	for id, want := range c.jobs {
		if r := c.demesne("wait", "--timeout", "2m", id); r.code == 124 {
			t.Errorf("job %s does not end", id)
		} else if logs := c.demesne("logs", id); r.code == 0 && logs.stdout != want && !strings.Contains(r.stdout+r.stderr+logs.stderr, "are lost") {
			t.Errorf("job %s succeeded, but its output is lost: %+v %+v", id, r, logs)
		}
	}
	for _, w := range workloads {
		if v := w.run(c, "123456"); v != complete {
			t.Errorf("%s does not work afterwards: %s", w.name, v.why)
		}
	}
	for id := range strings.FieldsSeq(c.must("ls", "-q")) {
		c.demesne("rm", "--force", id)
	}
	c.api.stop(syscall.SIGTERM)
	for id := range c.jobs {
		c.demesne("wait", id)
	}
	c.demesne("gc", "--runner")
	os.RemoveAll(c.home + "/.config") // the agents' list of host tools
	c.next(t)
	for _, b := range c.broken {
		t.Error(b)
	}
}
