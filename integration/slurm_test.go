package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/integration/fixture"
)

// cluster is a box whose programs run as an ordinary user without subordinate ids, on the submitting machine of a cluster.
type cluster struct {
	*box
	on    string // the place of its jobs
	state string // of the engine
	cmd   *exec.Cmd
}

// player has an entry in passwd, which Slurm needs, but none in subuid.
const player = "games"

// newCluster starts the cluster that clusters/NAME.sh makes.
func newCluster(t *testing.T, name string, prepare func(*cluster)) *cluster {
	t.Helper()
	need(t, os.Getuid() == 0, "root, to start a cluster")
	for _, p := range []string{"nsenter", "setpriv"} {
		program(t, p)
	}
	b := newBox(t)
	c := &cluster{box: b, on: name, state: b.dir + "/" + name}
	prepare(c)
	for _, d := range []string{b.home, b.run, b.dir + "/k"} {
		if err := os.Chown(d, 5, 60); err != nil { // Debian's ids of games
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("clusters/" + name + ".sh")
	if err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(script, c.state, "sh", "-c", "echo ready; exec cat") // as long as the test
	c.cmd.Dir = b.dir
	c.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	var errs bytes.Buffer
	c.cmd.Stderr = &errs
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	if err1 != nil || err2 != nil || c.cmd.Start() != nil {
		t.Fatal(err1, err2)
	}
	t.Cleanup(func() {
		in.Close()
		c.cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v: %s", line, err, errs.String())
	}
	b.keepsJobs()
	b.inside = []string{"nsenter", "--target", c.child(c.cmd.Process.Pid), "--net", "--mount", "--pid",
		"setpriv", "--reuid=" + player, "--regid=" + player, "--clear-groups"}
	b.extra = append(b.extra, "WORD=word", "TMPDIR="+b.mkdir("tmp"), "DEMESNE_MCP_ALLOWLIST="+b.file("allowlist.json", "{}", 0o644))
	os.Chmod(b.dir+"/tmp", 0o1777)
	for _, d := range []string{"work", "said", "outputs", "jupyter", "jupyter/config", "ipython"} {
		os.Chmod(b.mkdir(d), 0o1777)
	}
	return c
}

// child returns the only child of a process.
func (c *cluster) child(pid int) string {
	c.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// job starts a background job on the cluster and returns its id.
func (c *cluster) job(args ...string) string {
	c.Helper()
	r := c.demesne(append([]string{"run", "--background", "--on", c.on}, args...)...)
	if r.code != 0 {
		c.Fatalf("%+v", r)
	}
	return strings.TrimSpace(r.stdout)
}

// root runs a program as root in the cluster's namespaces.
func (c *cluster) root(args ...string) {
	c.Helper()
	i := slices.Index(c.inside, "setpriv")
	cmd := exec.Command(c.inside[0], append(c.inside[1:i:i], args...)...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.state+"/slurm.conf")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("%q: %v: %s", args, err, out)
	}
}

// placedJob is a job as demesne jobs --json prints it.
type placedJob struct {
	ID, Status, On, Node, Message string
	Ended                         time.Time
	Result                        *report
}

func (c *cluster) status(id string) (j placedJob) {
	c.Helper()
	r := c.demesne("jobs", "--json")
	var all []placedJob
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		c.Fatalf("%v: %+v", err, r)
	}
	for _, j = range all {
		if j.ID == id {
			return j
		}
	}
	c.Fatalf("no job %s", id)
	return j
}

// until waits for text in the job's stdout.
func (c *cluster) until(id, text string) {
	c.Helper()
	eventually(c, text, func() bool { return strings.Contains(c.demesne("logs", id).stdout, text) })
}

// TestSlurm runs commands on a real cluster of two machines, as an ordinary user without subordinate ids.
func TestSlurm(t *testing.T) {
	for _, p := range []string{"slurmctld", "slurmd", "munged"} {
		program(t, p)
	}
	c := newCluster(t, "slurm", func(*cluster) {})
	c.extra = append(c.extra, "SLURM_CONF="+c.state+"/slurm.conf")
	t.Run("run", func(t *testing.T) {
		out := c.dir + "/work/result"
		r := c.demesne("run", "--on", "slurm", "--out", out, "--env", "WORD", "--", "sh", "-c",
			`printf '%s|' "$@"; cat /etc/hostname >/out/f; echo "$WORD ${DEMESNE_TEST_SECRET-none}" >&2; exit 7`, "sh", "a b", "$(id)", "'%")
		if r.code != 7 || r.stdout != "a b|$(id)|'%|" || r.stderr != "word none\n" {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(out + "/f"); err != nil {
			t.Error(err)
		}
	})
	t.Run("job", func(t *testing.T) {
		id := c.job("--json="+c.dir+"/work/r.json", "--", "sh", "-c", "echo one; echo two >&2")
		if r := c.demesne("logs", "-f", id); r.stdout != "one\n" || r.stderr != "two\n" {
			t.Errorf("logs: %+v", r)
		}
		r := c.demesne("wait", "--json", id)
		var j placedJob
		if err := json.Unmarshal([]byte(r.stdout), &j); err != nil || j.Status != "succeeded" || j.On != "slurm" || j.Node != "n1" && j.Node != "n2" {
			t.Errorf("wait: %+v, %v", r, err)
		}
		var p report
		if text, err := os.ReadFile(c.dir + "/work/r.json"); err != nil || json.Unmarshal(text, &p) != nil {
			t.Fatalf("%v: %s", err, text)
		}
		// The partition gives a job 512 MiB, of which demesne's own processes get a part.
		if i := slices.IndexFunc(p.Receipt.Limits, func(l limit) bool { return l.Name == "memory" && l.Value == "402653184" }); i < 0 {
			t.Errorf("%+v", p.Receipt.Limits)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		id := c.job("--", "sh", "-c", "echo up; exec sleep 1000")
		c.until(id, "up")
		if j := c.status(id); j.Status != "running" || j.Node == "" {
			t.Errorf("%+v", j)
		}
		if r := c.demesne("cancel", id); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if j := c.status(id); j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
			t.Errorf("%+v", j)
		}
		queued := c.job("--memory", "3500m", "--", "true") // both machines have less left while such a job runs
		other := c.job("--memory", "3500m", "--", "sleep", "1000")
		third := c.job("--memory", "3500m", "--", "sleep", "1000")
		c.demesne("wait", queued)
		for _, id := range []string{third, other} {
			c.demesne("cancel", id)
			if j := c.status(id); j.Status != "cancelled" {
				t.Errorf("%+v", j)
			}
		}
	})
	t.Run("signal", c.interrupt)
	t.Run("map", func(t *testing.T) { slurmMap(t, c) })
	t.Run("alike", c.alike)
	t.Run("full", func(t *testing.T) { placedFull(t, c) })
	t.Run("untrusted", func(t *testing.T) { slurmUntrusted(t, c) })
	t.Run("agent", func(t *testing.T) { slurmAgent(t, c) })
	t.Run("refused", func(t *testing.T) {
		for want, args := range map[string][]string{
			"invalid partition":          {"--on", "slurm:nope", "--", "true"},
			"is not local, slurm":        {"--on", "mars", "--", "true"},
			"no partition, names":        {"--on", "slurm:", "--", "true"},
			"name something of this":     {"--on", "slurm", "--key", "k", "--", "true"},
			"cannot be combined with":    {"--on", "slurm", "-i", "--", "cat"},
			"cluster's disk":             {"--on", "slurm", "--secret", "DEMESNE_TEST_SECRET", "--secret-for", "DEMESNE_TEST_SECRET=good.test", "--", "true"},
			"name of a partition":        {"--on", "slurm:a b", "--", "true"},
			"no command given":           {"--on", "slurm"},
			"not set in this environm":   {"--on", "slurm", "--env", "UNSET_HERE", "--", "true"},
			"Memory specification can n": {"--on", "slurm", "--memory", "9g", "--", "true"},
		} {
			if r := c.demesne(append([]string{"run"}, args...)...); r.code != 125 || !strings.Contains(r.stderr, want) {
				t.Errorf("%q: %+v", args, r)
			}
		}
		cmd := c.command("demesne", "run", "--on", "slurm", "--", "true")
		cmd.Path, cmd.Args = bin+"/demesne", cmd.Args[len(c.inside):]
		cmd.Env = append(cmd.Env, "PATH=/nowhere")
		if r := c.finish(cmd); r.code != 125 || !strings.HasPrefix(r.stderr, "demesne: run: start job: sbatch is not installed\nhint: ") {
			t.Errorf("without Slurm: %+v", r)
		}
	})
	t.Run("document", func(t *testing.T) {
		steps := []step{{command: "cd " + c.dir + "/work"}} // nsenter leaves the directory
		transcript(c.box, slurmGuide, append(steps, stepsOf(document(t, slurmGuide))...))
	})
	t.Run("secret", func(t *testing.T) {
		found := 0
		filepath.WalkDir(c.state, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(realKey)) {
				t.Errorf("%s has a secret", path)
			}
			found++
			return nil
		})
		if found < 5 {
			t.Errorf("%d files", found)
		}
	})
	t.Run("split", func(t *testing.T) { slurmSplit(t, c) })
	t.Run("machine", func(t *testing.T) {
		gate := c.mkdir("work/gate")
		const end = "until [ -e /in/gate/open ]; do sleep 0.1; done; echo end"
		list := strings.TrimSpace(c.over("1\n2\n3\n", "map", "--on", "slurm", "--background", "--in", gate, "-c", `echo "up $0"; `+end).stdout)
		id := c.job("--in", gate, "--", "sh", "-c", "echo up; "+end)
		for _, id := range []string{id, list + "/1", list + "/2", list + "/3"} { // on both machines: each has two processors
			c.until(id, "up")
		}
		first := c.status(id).Node
		pid, err := os.ReadFile(c.state + "/" + first + ".pid")
		if err != nil {
			t.Fatal(err)
		}
		// Slurm sees the failure by itself after a while, and then waits two minutes for the credential of the first attempt to expire.
		c.root("kill", "-KILL", strings.TrimSpace(string(pid)))
		c.root("scontrol", "update", "NodeName="+first, "State=DOWN", "Reason=failed")
		eventually(t, "the requeue", func() bool { return c.status(id).Status == "queued" })
		c.file("work/gate/open", "", 0o644)
		c.root("scontrol", "update", "JobName="+id, "StartTime=now")
		c.root("sh", "-c", "scontrol update JobName="+list+" StartTime=now || :") // some of its tasks have run
		if r := c.demesne("wait", list); r.code != 0 || !strings.HasSuffix(r.stderr, "3 items: 3 succeeded\n") {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("logs", list); r.stdout != "up 1\nend\nup 2\nend\nup 3\nend\n" {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("wait", id); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if j := c.status(id); j.Status != "succeeded" || j.Node == first {
			t.Errorf("%+v", j)
		}
		if r := c.demesne("logs", id); r.stdout != "up\nend\n" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("left", func(t *testing.T) {
		if left := names(c.dir + "/tmp"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
}

// interrupt checks that Ctrl-C ends a command on the cluster.
func (c *cluster) interrupt(t *testing.T) {
	cmd := c.command("demesne", "run", "--on", c.on, "--", "sh", "-c", "echo up; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Errorf("%q", line)
	}
	child, err := strconv.Atoi(c.child(cmd.Process.Pid)) // of nsenter
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(child, syscall.SIGINT)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v", cmd.ProcessState)
	}
}

// slurmMap runs lists as array jobs. The cluster allows four tasks in an array.
func slurmMap(t *testing.T, c *cluster) {
	dir := c.mkdir("map")
	os.Chmod(dir, 0o1777)
	r := c.over("1\n2\n3\n4\n5\n6\n7\n", "map", "--on", "slurm", "--output", dir, "-c", `echo "item $0"; cat /proc/sys/kernel/hostname >&2; test "$0" != 4`)
	if r.code != 1 || r.stdout != "" || !strings.HasSuffix(r.stderr, ": 7 items: 6 succeeded, 1 failed\n") {
		t.Errorf("%+v", r)
	}
	for n := 1; n <= 7; n++ {
		if got, _ := os.ReadFile(fmt.Sprintf("%s/%d/stdout", dir, n)); string(got) != fmt.Sprintf("item %d\n", n) {
			t.Errorf("%d: %q", n, got)
		}
	}
	job := strings.Fields(c.demesne("jobs", "-q").stdout)
	all := c.items(job[len(job)-1])
	if len(all) != 7 || all[3].Result == nil || all[6].On != "slurm" || all[6].Node == "" {
		t.Errorf("%+v", all)
	}
	r = c.over(strings.Repeat("sleep 1000\n", 6), "map", "--on", "slurm:debug", "--parallel", "2", "--background", "-c", "echo up; $0")
	id := strings.TrimSpace(r.stdout)
	c.until(id+"/2", "up")
	if j := c.status(id); j.Status != "running" {
		t.Errorf("%+v", j)
	}
	if r := c.demesne("cancel", id+"/1"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	c.until(id+"/5", "up") // the second item of the first task
	if r := c.demesne("cancel", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for i, j := range c.items(id) {
		if j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
			t.Errorf("%d: %+v", i, j)
		}
	}
}

// slurmSplit parts a machine from the others while its job goes on and still sees the job's files. The job has one result, of the
// machine that begins it again.
func slurmSplit(t *testing.T, c *cluster) {
	pause := c.file("work/pause", "1000", 0o644)
	id := c.job("--in", pause, "--", "sh", "-c", "echo up; sleep $(cat /in/pause); echo end")
	c.until(id, "up")
	c.file("work/pause", "0", 0o644) // for the second machine
	first := c.status(id).Node
	cable := "veth" + strings.TrimPrefix(first, "n")
	c.root("ip", "link", "set", cable, "down")
	c.root("scontrol", "update", "NodeName="+first, "State=DOWN", "Reason=split")
	eventually(t, "the requeue", func() bool { return c.status(id).Status == "queued" })
	c.root("scontrol", "update", "JobName="+id, "StartTime=now")
	if r := c.demesne("wait", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	c.root("ip", "link", "set", cable, "up")
	if j := c.status(id); j.Status != "succeeded" || j.Node == first {
		t.Errorf("%+v", j)
	}
	if r := c.demesne("logs", id); r.stdout != "up\nend\n" {
		t.Errorf("%+v", r)
	}
	c.root("scontrol", "update", "NodeName="+first, "State=RESUME")
}

// listen listens at an address of the submitting machine.
func (c *cluster) listen(address string) net.Listener {
	c.Helper()
	var l net.Listener
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		ns, err := os.Open("/proc/" + c.child(c.cmd.Process.Pid) + "/ns/net")
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			l, err = net.Listen("tcp", address+":0")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		c.Fatal(err)
	}
	return l
}

// slurmAgent runs a coding agent on the cluster, with a credential that only its user can read.
func slurmAgent(t *testing.T, c *cluster) {
	m := &fixture.Model{Script: fixture.Steps(shell("cat /proc/sys/kernel/hostname >/out/host; echo x"), fixture.Answer{Text: "Answer."})}
	l := c.listen("10.20.7.254")
	s := &http.Server{Handler: m}
	go s.Serve(l)
	defer s.Close()
	program, err := os.ReadFile("testdata/agent/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	c.mkdir("prog")
	c.file("prog/fake-agent", string(program), 0o755)
	key := c.file("key", realKey, 0o600)
	os.Chown(key, 5, 60)
	row := strings.Replace(fakeAgent, `{"env":"FAKE_KEY",`, `{"env":"FAKE_KEY","base":"http://127.0.0.1:1","header":"X-Api-Key","inside":{"FAKE_TOKEN":"{token}"}},{"file":"`+key+`","kind":"text",`, 1)
	before := c.extra
	defer func() { c.extra = before }()
	base := "FAKE_BASE=http://" + l.Addr().String()
	c.extra = append(slices.Clip(before), "PATH="+c.dir+"/prog:"+os.Getenv("PATH"), "DEMESNE_AGENTS_FILE="+c.file("agents.json", row, 0o644), base, "DEMESNE_CODEX_ENABLED=false")
	out := c.dir + "/work/agent"
	r := c.demesne("agent", "run", "--on", "slurm", "--out", out, "Work.")
	if r.code != 0 || r.stdout != "Answer.\n" || !strings.Contains(r.stderr, "→ Bash cat") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(out + "/results.json"); err != nil {
		t.Error(err)
	}
	if log := m.Log(); len(log) == 0 || log[0].Header.Get("X-Api-Key") != realKey {
		t.Errorf("%+v", log)
	}
	r = c.demesne("agent", "run", "--on", "slurm", "--background", "--script", "echo up; sleep 1000", "Work.")
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the start", func() bool { return c.status(id).Status == "running" })
	if r := c.demesne("cancel", id); r.code != 0 || c.status(id).Status != "cancelled" {
		t.Errorf("%+v, %+v", r, c.status(id))
	}
	c.extra = append(c.extra, "FAKE_KEY="+canary)
	if r := c.demesne("agent", "run", "--on", "slurm", "Work."); r.code != 125 || !strings.Contains(r.stderr, "FAKE_KEY would be written to the cluster's disk") {
		t.Errorf("%+v", r)
	}
}

// TestSlurmAllocation checks that a job on this machine finds its sandbox within an allocation of Slurm, as salloc makes one. It must not get
// the directories of a job that Slurm started.
func TestSlurmAllocation(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	b.extra = append(b.extra, "SLURM_JOB_ID=7", "SLURM_CPUS_ON_NODE=1")
	b.demesne("create", "--name", "one")
	job := b.demesne("exec", "--background", "one", "--", "sh", "-c", "exit 4")
	if r := b.demesne("wait", strings.TrimSpace(job.stdout)); r.code != 4 {
		t.Errorf("%+v, %+v", job, r)
	}
	b.demesne("rm", "one")
}
