package integration

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// attacker is a hostile client that the test talks to: it prints lines, and goes on when the test answers one.
type attacker struct {
	*dock
	cmd *exec.Cmd
	out *bufio.Scanner
	in  interface{ Write([]byte) (int, error) }
}

// begin starts Python with the functions of hostile in a sandbox with a Docker socket.
func (d *dock) begin(script string, flags ...string) *attacker {
	d.Helper()
	args := append([]string{"run", "-i", "--docker", "--timeout", "3m", "--in", d.file("attack.py", hostile+script, 0o644)}, flags...)
	a := &attacker{dock: d, cmd: d.command("demesne", append(args, "--", "python3", "-u", "/in/attack.py")...)}
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		a.in, err = a.cmd.StdinPipe()
	}
	if err == nil {
		a.cmd.Stderr = os.Stderr
		err = a.cmd.Start()
	}
	if err != nil {
		d.Fatal(err)
	}
	a.out = bufio.NewScanner(out)
	a.out.Buffer(nil, 1<<20)
	return a
}

// line returns the next line that the attacker prints.
func (a *attacker) line() string {
	a.Helper()
	if !a.out.Scan() {
		a.Fatalf("the attacker ended: %v", a.cmd.Wait())
	}
	return a.out.Text()
}

// next lets the attacker go on.
func (a *attacker) next() { a.in.Write([]byte("\n")) }

// end lets the attacker end, and checks that nothing remains.
func (a *attacker) end() {
	a.Helper()
	a.next()
	if err := a.cmd.Wait(); err != nil {
		a.Error(err)
	}
	if r := a.demesne("ls", "-q"); r.stdout != "" {
		a.Errorf("containers remain: %s", r.stdout)
	}
}

// TestEscapeP32DockerSum fills the limits of a sandbox with containers. The sandbox and its containers together never have more
// than the sandbox began with: at each step the sums of what the receipts say are within it, and as many processes run at most.
// The caller changes the whole, and nothing takes that back. Limits that only a smaller number of processors holds are not exact.
func TestEscapeP32DockerSum(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	a := d.begin(`
def more(most=99, **k):
    for n in range(most):
        status, got = create(OpenStdin=True, Cmd=["sh", "-c", "(i=0; while test $i -lt 900; do sleep 98765 & i=$((i+1)); done); read x"], **k)
        if status != 201: return status
        ask("POST", "/containers/" + got["Id"] + "/start")
threads = [threading.Thread(target=more) for _ in range(4)] # creations race for what is left
for t in threads: t.start()
for t in threads: t.join()
more(2, HostConfig={"Memory": 8 << 20, "NanoCpus": 10**7, "PidsLimit": 4, "StorageOpt": {"size": "1m"}})
print("full", create()[0]); input()
for c in ask("GET", "/containers/json?all=1")[1]: ask("DELETE", "/containers/" + c["Id"] + "?force=1")
print("empty"); input()
held = bytearray(b"x") * (350 << 20)
print("used", create(HostConfig={"Memory": 300 << 20})[0], create(HostConfig={"Memory": 64 << 20})[0]); input()
`, "--memory", "512m", "--pids", "600", "--disk", "1g", "--cpus", "2")
	if got := a.line(); got != "full 409" {
		t.Errorf("the attacker says %q", got)
	}
	all := map[string]float64{"memory": 512 << 20, "pids": 600, "disk": 1 << 30, "cpus": 2}
	parent := a.within(all)
	n := 0
	eventually(t, "the containers to fork", func() bool {
		out, _ := exec.Command("pgrep", "-fxc", "sleep 98765").Output()
		n, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return n > 100
	})
	if n > 600 {
		t.Errorf("%d processes run", n)
	}
	if r := d.demesne("limits", "--memory", "1g", parent); r.code != 0 {
		t.Errorf("%+v", r)
	}
	all["memory"] = 1 << 30
	a.within(all)
	if r := d.demesne("limits", "--memory", "256m", parent); r.code == 0 {
		t.Error("the sandbox can have less than its containers")
	}
	if r := d.demesne("limits", "--memory", "512m", parent); r.code != 0 {
		t.Errorf("%+v", r)
	}
	all["memory"] = 512 << 20
	a.within(all)
	a.next()
	if got := a.line(); got != "empty" {
		t.Errorf("the attacker says %q", got)
	}
	if own := a.limits()[parent]; own["memory"] != 512<<20 || own["cpus"] != 2 && own["cpus"] != 0 {
		t.Errorf("without containers the sandbox has %v", own)
	}
	a.next()
	if got := a.line(); got != "used 409 201" {
		t.Errorf("a sandbox that uses its memory creates containers: %q", got)
	}
	a.within(all)
	a.end()
}

// limits returns the limits that the receipts of all sandboxes say, and what their control groups count.
func (a *attacker) limits() map[string]map[string]float64 {
	a.Helper()
	all := map[string]map[string]float64{}
	for _, id := range strings.Fields(a.must("ls", "-q")) {
		var one struct{ Receipt struct{ Limits []limit } }
		r := a.demesne("inspect", "--json", id)
		if r.code != 0 { // it has ended meanwhile
			continue
		}
		if err := json.Unmarshal([]byte(r.stdout), &one); err != nil {
			a.Fatal(err)
		}
		all[id] = map[string]float64{}
		for _, l := range one.Receipt.Limits {
			n, err := strconv.ParseFloat(l.Value, 64)
			if err != nil && l.Name != "files" {
				a.Errorf("%s has no limit: %+v", id, l)
			}
			if l.Mechanism != "sched_setaffinity" {
				all[id][l.Name] = n
			}
		}
	}
	return all
}

// within checks that the limits of all sandboxes together are at most these, and returns the id of the first sandbox.
func (a *attacker) within(most map[string]float64) (parent string) {
	a.Helper()
	each := a.limits()
	if len(each) < 2 || len(each) > 12 {
		a.Errorf("there are only %d sandboxes", len(each))
	}
	for name, bound := range most {
		sum := 0.0
		for _, l := range each {
			sum += l[name]
		}
		if sum > bound {
			a.Errorf("%d sandboxes have %v of %s together, more than %v", len(each), sum, name, bound)
		}
	}
	for id := range each {
		if parent == "" || each[id]["pids"] > each[parent]["pids"] {
			parent = id
		}
	}
	return parent
}
