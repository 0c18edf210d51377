package integration

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMCPJob checks that a job outlives its server, and that another server reports its state and result.
func TestMCPJob(t *testing.T) {
	b := newBox(t)
	r := b.once("sandbox_script", args{"command": "echo begun; while ! test -e /out/go; do sleep 0.02; done; echo done; echo e >&2; exit 5", "background": true, "labels": args{"team": "search"}})
	id := r.field("job_id")
	if r.Text != "job_id: "+id+"\nstatus: running" || r.field("status") != "running" {
		t.Errorf("start: %+v", r)
	}
	c := b.mcp()
	eventually(t, "the job's output", func() bool {
		s := c.must("sandbox_status", args{"job_id": id, "include_stdout_tail": true})
		return s.field("status") == "running" && s.field("stdout_tail") == "begun\n" && s.Fields["exit_code"] == nil
	})
	if r := c.must("sandbox_wait", args{"job_id": id, "timeout_seconds": 0.1}); r.field("status") != "running" || r.field("message") != "still running; call sandbox_wait again" {
		t.Errorf("wait, too short: %+v", r)
	}
	dirs, _ := filepath.Glob(b.out + "/*-*")
	if len(dirs) != 1 {
		t.Fatalf("output directories: %v", dirs)
	}
	if err := os.WriteFile(dirs[0]+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r = c.must("sandbox_wait", args{"job_id": id})
	if r.field("status") != "succeeded" || r.field("exit_code") != "5" || r.field("result_text") != "begun\ndone\n" || r.receipt() == nil || r.field("stderr") != "e\n" || !strings.Contains(r.Text, "\nexit_code: 5\n") {
		t.Errorf("wait: %+v", r)
	}
	if got := readFile(t, r.field("output_path")+"/stderr.log"); got != "e\n" {
		t.Errorf("stderr.log: %q", got)
	}
	first := c.must("sandbox_status", args{"job_id": id}).field("elapsed_seconds")
	if again := b.once("sandbox_status", args{"job_id": id}).field("elapsed_seconds"); again != first {
		t.Errorf("elapsed %s, then %s", first, again)
	}
	if list := c.must("sandbox_list", args{}); !strings.Contains(fmt.Sprint(list.Fields["jobs"]), "labels:map[team:search]") {
		t.Errorf("list: %v", list.Fields)
	}
	if r := c.must("sandbox_cancel", args{"job_id": id}); r.Text != "job_id: "+id+"\nstatus: succeeded" {
		t.Errorf("cancel afterwards: %+v", r)
	}
}

// TestMCPJobCancel checks that cancelling ends a job at once, with all its processes, and that cancelling twice
// is allowed.
func TestMCPJobCancel(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	id := c.must("sandbox_script", args{"command": "setsid sleep 3333 & (sleep 3333 &) ; echo up; sleep 3333", "background": true}).field("job_id")
	eventually(t, "the job to be up", func() bool { return sleepers("3333") == 3 })
	for range 2 {
		if r := c.must("sandbox_cancel", args{"job_id": id}); r.Text != "job_id: "+id+"\nstatus: cancelled" {
			t.Errorf("cancel: %+v", r)
		}
	}
	if sleepers("3333") != 0 {
		t.Error("the job is cancelled and its processes are not")
	}
	if r := c.must("sandbox_wait", args{"job_id": id}); r.field("status") != "cancelled" || r.Fields["result_text"] == nil {
		t.Errorf("wait: %+v", r)
	}
}

// TestMCPJobFailed checks that a job that could not run, or was killed, has failed and gives the reason.
func TestMCPJobFailed(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	gone := b.file("gone", "", 0o644)
	for _, step := range []struct {
		name string
		args args
		do   func()
		want string
	}{
		{"runner killed", args{"command": "sleep 3333"}, func() { kill(runners(true)) }, "the runner "}, // was killed; or ended, if it had not yet reported that the command runs
		{"its process killed", args{"command": "sleep 3333"}, func() { kill(jobProcesses()) }, "the process that ran the job was killed"},
		{"missing directory", args{"command": "true", "cwd": "/nowhere", "files": []string{gone}}, nil, "/nowhere"},
	} {
		id := c.must("sandbox_script", with(step.args, "background", true)).field("job_id")
		if step.do != nil {
			eventually(t, "the job to be up", func() bool { return sleepers("3333") == 1 })
			step.do()
		}
		r := c.must("sandbox_wait", args{"job_id": id})
		if r.field("status") != "failed" || !strings.Contains(r.field("message"), step.want) {
			t.Errorf("%s: %+v", step.name, r)
		}
		eventually(t, "the sandbox to be gone", func() bool { return len(named("demesne-init")) == 0 })
	}
}

func with(a args, name string, value any) args {
	a[name] = value
	return a
}

func kill(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// jobProcesses lists the processes that supervise jobs.
func jobProcesses() (pids []int) {
	for _, p := range descendants() {
		if strings.Contains(p.String(), `"`+bin+`/demesne-frontend\x00mcp\x00job\x00`) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// TestMCPJobQueue checks that jobs wait for a slot in order of arrival, report that they are queued, and can be
// cancelled while queued.
func TestMCPJobQueue(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MAX_JOBS=1")
	c := b.mcp()
	first := c.must("sandbox_script", args{"command": "sleep 3333", "background": true}).field("job_id")
	second := c.must("sandbox_script", args{"command": "echo never", "background": true})
	third := c.must("sandbox_script", args{"command": "echo third", "background": true})
	if second.field("status") != "queued" || third.field("status") != "queued" {
		t.Errorf("second %+v, third %+v", second.Fields, third.Fields)
	}
	if r := c.must("sandbox_cancel", args{"job_id": second.field("job_id")}); r.field("status") != "cancelled" {
		t.Errorf("cancel in the queue: %+v", r)
	}
	c.must("sandbox_cancel", args{"job_id": first})
	if r := c.must("sandbox_wait", args{"job_id": third.field("job_id")}); r.field("result_text") != "third\n" {
		t.Errorf("third: %+v", r)
	}
}

// TestMCPKilled kills servers at random moments, one of five of them soon after it answered. A finished job keeps its result, and a running job continues. A
// one-shot sandbox is removed, and a persistent one remains if and only if its id was answered. No other files or
// processes remain.
func TestMCPKilled(t *testing.T) {
	b := newBox(t)
	const atOnce = 5
	b.extra = append(b.extra, "DEMESNE_MAX_SANDBOXES=100000", "DEMESNE_POOL_SIZE=0")
	var jobs, boxes []string
	keeper := b.mcp()
	for round := 0; round < 2*rounds(); round += atOnce {
		var clients [atOnce]*mcpClient
		for i := range clients {
			clients[i] = b.mcpRaw()
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, c := range clients {
			after := time.Duration(rand.New(rand.NewSource(int64(round+i))).Intn(100+i*200)) * time.Millisecond // the first is killed before much is done
			if i == atOnce-1 {
				after /= 20 // counted from its answers, so that every machine has some
			}
			wg.Go(func() {
				job, box := c.killedAfter(after, i > 2, i == atOnce-1)
				for _, id := range box { // use it soon, because its creator died before confirming the id
					if r := keeper.must("sandbox_exec", args{"sandbox_id": id, "command": "echo there"}); r.field("stdout") != "there\n" {
						t.Errorf("sandbox %s: %+v", id, r)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				jobs, boxes = append(jobs, job...), append(boxes, box...)
			})
		}
		wg.Wait()
	}
	if len(jobs) == 0 || len(boxes) == 0 {
		t.Errorf("%d jobs and %d sandboxes were ever answered", len(jobs), len(boxes))
	}
	c := b.mcp()
	for _, id := range jobs {
		if r := c.must("sandbox_wait", args{"job_id": id}); r.field("result_text") != "result\n" || r.field("status") != "succeeded" {
			t.Errorf("job %s: %+v", id, r)
		}
	}
	for _, id := range boxes {
		if r := c.must("sandbox_exec", args{"sandbox_id": id, "command": "echo there"}); r.field("stdout") != "there\n" {
			t.Errorf("sandbox %s: %+v", id, r)
		}
	}
	eventually(t, "jobs to end", func() bool { return len(jobProcesses()) == 0 })
	eventually(t, "sandboxes with an unknown id to be gone", func() bool {
		listed := strings.Fields(b.demesne("ls", "-q").stdout)
		return len(listed) == len(boxes) && len(named("demesne-init")) == len(listed) && sleepers("3222") == 0
	})
	for _, id := range boxes {
		c.must("sandbox_destroy", args{"sandbox_id": id})
	}
	c.close()
	t.Logf("%d jobs and %d sandboxes answered", len(jobs), len(boxes))
}

// killedAfter starts calls on a new server, and kills it after delay. With answered, the delay begins when the
// server has answered. It returns the jobs that the server answered and, if creates is set, the sandboxes.
func (c *mcpClient) killedAfter(delay time.Duration, creates, answered bool) (jobs, boxes []string) {
	c.send("initialize", args{"protocolVersion": "2025-06-18", "capabilities": args{}, "clientInfo": args{"name": "test", "version": "1"}})
	c.tell("notifications/initialized", nil)
	c.start("sandbox_script", args{"command": busy})
	_, job := c.start("sandbox_script", args{"command": "echo result", "background": true})
	c.start("sandbox_script", args{"command": "exit 1"})
	var box <-chan answer
	if creates {
		_, box = c.start("sandbox_create", args{})
	}
	end := func() {
		time.Sleep(delay) // the moment that the caller chose
		c.cmd.Process.Kill()
		<-c.ended
		c.cmd.Wait()
	}
	if !answered {
		end()
	}
	if r := <-job; !r.Lost && !r.IsError {
		jobs = append(jobs, r.field("job_id"))
	}
	if creates {
		if r := <-box; !r.Lost && !r.IsError {
			boxes = append(boxes, r.field("sandbox_id"))
		}
	}
	if answered {
		end()
	}
	return jobs, boxes
}

// TestMCPKilledWhileItMakes checks that a persistent sandbox is removed if its creator died before receiving its
// id.
func TestMCPKilledWhileItMakes(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_POOL_SIZE=0")
	kept := b.cli("create", "--share", "mcp")
	c := b.mcp()
	c.must("sandbox_exec", args{"sandbox_id": kept, "command": "true"}) // opens a connection to the runner
	runner := runners(true)[0]
	freeze(t, runner)
	c.start("sandbox_create", args{})
	eventually(t, "the request to wait in the runner's socket", func() bool { return unread(t, runner) })
	c.cmd.Process.Kill()
	<-c.ended
	syscall.Kill(runner, syscall.SIGCONT)
	eventually(t, "the sandbox to be gone", func() bool {
		return strings.TrimSpace(b.demesne("ls", "-q").stdout) == kept && len(named("demesne-init")) == 1
	})
	b.demesne("rm", kept)
}

// unread reports whether a connected socket of a process has bytes that the process has not read.
func unread(t *testing.T, pid int) bool {
	sockets, err := exec.Command(program(t, "ss"), "-xnH", "state", "established").Output()
	if err != nil {
		t.Fatal(err)
	}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for l := range strings.Lines(string(sockets)) {
		f := strings.Fields(l) // type, received, sent, path, inode, and its peer's
		if len(f) > 4 && f[1] != "0" && slices.ContainsFunc(links, func(link string) bool { to, _ := os.Readlink(link); return to == "socket:["+f[4]+"]" }) {
			return true
		}
	}
	return false
}

// TestMCPKilledUntold checks that a sandbox whose id was delivered keeps its full TTL. One whose creator was
// killed before it could deliver the id is removed.
func TestMCPKilledUntold(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_SANDBOX_ROOT="+b.mkdir("kept"))
	ids := func() []string { return strings.Fields(b.demesne("ls", "-q").stdout) }
	until := func(id string) time.Duration {
		st, err := os.Stat(filepath.Join(b.dir, "kept", id, "until"))
		if err != nil {
			return 0
		}
		return time.Until(st.ModTime())
	}
	known := []string{strings.TrimSpace(b.demesne("create").stdout), b.once("sandbox_create", args{}).field("sandbox_id")}
	for _, id := range known {
		eventually(t, "its whole time", func() bool { return until(id) > 47*time.Hour })
	}
	// A server whose stdout is blocked has not delivered the id.
	cmd := b.command("demesne-mcp")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := startUnread(t, cmd)
	full := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"head -c 1000000 /dev/zero | tr '\\0' x","max_output_bytes":1000000}}}`
	io.WriteString(in, greeting+full+"\n")
	eventually(t, "its stdout to be full", func() bool { n, _ := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ); return n > 60000 })
	io.WriteString(in, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sandbox_create","arguments":{}}}`+"\n")
	eventually(t, "a third sandbox with an unknown id", func() bool {
		for _, id := range ids() {
			if left := until(id); left > 0 && left < time.Minute {
				return true
			}
		}
		return false
	})
	// No state outside the server says that the runner's answer has arrived. A kill before it checks less, and passes.
	time.Sleep(200 * time.Millisecond)
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the sandbox with an unknown id to be gone", func() bool { return len(ids()) == 2 })
	for _, id := range known {
		b.must("exec", id, "--", "true")
	}
	b.must(append([]string{"rm"}, known...)...)
}

// TestMCPJobNotice checks that a client that asked for log messages is notified, once, that a job it started has
// ended.
func TestMCPJobNotice(t *testing.T) {
	b := newBox(t)
	c := b.mcp()
	c.ask("logging/setLevel", args{"level": "info"})
	id := c.must("sandbox_script", args{"command": "exit 3", "background": true, "egress": "none"}).field("job_id")
	notices := func() (all []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range c.notes {
			if n.Method == "notifications/message" {
				all = append(all, string(n.Params))
			}
		}
		return all
	}
	eventually(t, "the notice", func() bool { return len(notices()) > 0 })
	got := notices()
	for _, want := range []string{id, `"logger":"demesne.background-job"`, `"level":"info"`, `"status":"succeeded"`} {
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("notices %v, want one with %s", got, want)
		}
	}
}

// TestMCPNoNotice checks that a client that did not ask for messages, or only for warnings, gets no notice.
func TestMCPNoNotice(t *testing.T) {
	b := newBox(t)
	for _, level := range []string{"", "warning"} {
		c := b.mcp()
		if level != "" {
			c.ask("logging/setLevel", args{"level": level})
		}
		id := c.must("sandbox_script", args{"command": "true", "background": true, "egress": "none"}).field("job_id")
		c.must("sandbox_wait", args{"job_id": id})
		c.close() // the server has sent all its messages by then
		for _, n := range c.notes {
			if n.Method == "notifications/message" {
				t.Errorf("level %q: %s", level, n.Params)
			}
		}
	}
}
