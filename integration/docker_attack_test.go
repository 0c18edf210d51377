package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
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

// peak returns the most memory that the program behind the socket has had, in KiB.
func (a *attacker) peak() int {
	a.Helper()
	for _, p := range descendantsOf(a.cmd.Process.Pid) {
		if p.name == "demesne-docker" {
			return statusKB(a, p.pid, "VmHWM")
		}
	}
	a.Fatal("no process behind the socket")
	return 0
}

// TestEscapeP32DockerSum fills the limits of a sandbox with containers. The sandbox and its containers together never have more
// than the sandbox began with: at each step the sums of what the receipts say are within it, and as many processes run at most.
// The caller changes the whole, and nothing takes that back. Limits that only a smaller number of processors holds are not exact.
func TestEscapeP32DockerSum(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	seconds := fmt.Sprintf("9876%d", os.Getpid()) // of this test's sleep: another user's test has others
	a := d.begin(`
def more(most=99, **k):
    for n in range(most):
        status, got = create(OpenStdin=True, Cmd=["sh", "-c", "(i=0; while test $i -lt 900; do sleep `+seconds+` & i=$((i+1)); done); read x"], **k)
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
		out, _ := exec.Command("pgrep", "-fxc", "sleep "+seconds).Output()
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
	var each map[string]map[string]float64
	eventually(a, "the sandbox of a container, which begins after the answer", func() bool {
		each = a.limits()
		return len(each) > 1
	})
	if len(each) > 12 {
		a.Errorf("there are %d sandboxes", len(each))
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

// TestEscapeN47DockerBodies sends bodies that are slow or have no end, to archives and builds, while others use the socket. The
// others go on, and what is kept of such a body is bounded by the disk limit.
func TestEscapeN47DockerBodies(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	d.want(d.attack(`
create("c"); ask("POST", "/containers/c/start")
def tar(*entries):
    b = io.BytesIO(); t = tarfile.open(fileobj=b, mode="w")
    for name, text in entries:
        i = tarfile.TarInfo(name); i.size = len(text); t.addfile(i, io.BytesIO(text.encode()))
    t.close(); return b.getvalue()
def open_(line, text=b""):
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect("/run/docker.sock")
    s.sendall(line.encode() + b" HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n" + text); return s
def chunk(b): return b"%x\r\n" % len(b) + b + b"\r\n"
slow = [open_(line, chunk(b"\0" * 100)) for line in ["POST /build?t=slow", "PUT /containers/c/archive?path=/tmp", "POST /containers/create"] * 20]
says("create", (create("d")[0] - 201, ""))
says("archive", (ask("PUT", "/containers/d/archive?path=/tmp", tar(("f", "text")))[0] - 200, ""))
status, log = ask("POST", "/build?t=built", tar(("Dockerfile", "FROM local/bb\nRUN echo made >/made\n")))
says("build", (0 if "Successfully built" in log else log, ""))
zeros = b"\0" * (1 << 20)
head = tarfile.TarInfo("big"); head.size = 1 << 40
import zlib
gz = zlib.compressobj(1, wbits=31); bomb = b"".join([gz.compress(zeros) for _ in range(400)]) + gz.flush()
says("bomb", (0 if ask("POST", "/build", bomb)[0] != 200 else 1, ""))
says("bomb", (0 if ask("PUT", "/containers/c/archive?path=/tmp", bomb)[0] != 200 else 1, ""))
for line, kind in (("POST /build?t=x", "build"), ("PUT /containers/d/archive?path=/tmp", "archive")):
    s = open_(line, chunk(head.tobuf())); sent = 0
    try:
        while sent < 1 << 30: s.sendall(chunk(zeros)); sent += len(zeros)
    except OSError: pass
    says("endless " + kind, (0 if sent < 1 << 30 else sent, ""))
says("still", (ask("GET", "/_ping")[0] - 200, ""))
`, "--disk", "600m", "--memory", "1g"), "0|")
}

// TestEscapeN47DockerFlood makes containers write without end, sends thousands of creations, holds hundreds of attached
// connections, and reads none of the large answers. The program behind the socket stays small, and answers others.
func TestEscapeN47DockerFlood(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	a := d.begin(`
n = 0
def many():
    global n
    c = Conn("d"); body = json.dumps({"Image": "local/bb", "Cmd": ["true"], "Labels": {"l": "x" * 1000}, "Volumes": {"/v": {}}, "HostConfig": {"Memory": 1 << 45}})
    for _ in range(625):
        c.request("POST", "/containers/create", body); r = c.getresponse(); r.read(); n += r.status == 409
threads = [threading.Thread(target=many) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print("creations", n, len(ask("GET", "/volumes")[1]["Volumes"])); input()
for i in range(6):
    create("loud%d" % i, Cmd=["sh", "-c", "while :; do echo; done" if i % 2 else "while :; do cat /bin/busybox; done"], HostConfig={"Memory": 32 << 20}); ask("POST", "/containers/loud%d/start" % i)
held = []
def hold(line):
    s = socket.socket(socket.AF_UNIX); s.connect("/run/docker.sock"); held.append(s)
    s.sendall((line + " HTTP/1.1\r\nHost: d\r\nUpgrade: tcp\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n").encode()); return s
for i in range(150): hold("POST /containers/loud%d/attach?stream=1&stdout=1" % (i % 6))
made = [ask("POST", "/volumes/create", {"Name": "large%d" % i, "Labels": {"l": "x" * 250000}})[0] for i in range(20)]
print("kept", made.count(201), made[-1])
for i in range(20): hold("GET /volumes"); hold("GET /volumes/large1"); hold("GET /containers/json")
says("other", create("other", HostConfig={"Memory": 32 << 20})); says("volume", ask("POST", "/volumes/create", {"Name": "vv"}))
for s in held: s.close()
def execs():
    for _ in range(40):
        x = ask("POST", "/containers/other/exec", {"Cmd": ["cat", "/bin/busybox"], "AttachStdout": True})[1]["Id"]
        ask("POST", "/exec/" + x + "/start", {"Detach": True})
ask("POST", "/containers/other/start"); execs()
for i in range(300): hold("GET /events")
for s in held: s.close()
says("ping", (ask("GET", "/_ping")[0], "")); input()
`, "--memory", "1g", "--pids", "2000", "--disk", "2g")
	if got := a.line(); got != "creations 2500 0" {
		t.Errorf("the attacker says %q", got)
	}
	a.next()
	if got := a.line(); got != "kept 16 409" {
		t.Errorf("the attacker says %q", got)
	}
	for _, want := range []string{"other|201|", "volume|201|", "ping|200|"} {
		if got := a.line(); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if kb := a.peak(); kb > 192<<10 {
		t.Errorf("the program behind the socket took %d KiB", kb)
	}
	a.end()
}

// TestEscapeF45DockerRace binds a directory while the sandbox swaps it for a link to a directory of the machine, and back.
func TestEscapeF45DockerRace(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	d.file("outside/secret", canary, 0o644)
	lines := d.attack(`
os.mkdir("/workspace/dir"); os.symlink("`+d.dir+`/outside", "/workspace/link"); os.mkdir("/workspace/deep"); os.mkdir("/workspace/deep/dir")
import ctypes
swap, over = ctypes.CDLL(None).renameat2, threading.Event()
def race():
    while not over.is_set():
        for name in (b"/workspace/dir", b"/workspace/deep"): swap(-100, name, -100, b"/workspace/link", 2) # RENAME_EXCHANGE
threading.Thread(target=race).start()
told = {}
for i in range(60):
    source = ("/workspace/dir", "/workspace/deep/dir", "/workspace/deep/secret")[i % 3]
    status, c = create("r", Cmd=["sh", "-c", "cat /x/secret /x; ls /x; echo x >/x/made"], HostConfig={"Binds": [source + ":/x"]})
    if status == 201:
        status = ask("POST", "/containers/r/start")[0]
        if status == 204: ask("POST", "/containers/r/wait"); print(ask("GET", "/containers/r/logs?stdout=1&stderr=1")[1])
        ask("DELETE", "/containers/r?force=1")
    told[status] = told.get(status, 0) + 1
over.set(); print(told)
`, "--workspace", d.mkdir("ws"))
	if out := strings.Join(lines, "\n"); strings.Contains(out, canary) || len(names(d.dir+"/outside")) != 1 {
		t.Errorf("a container has a file of the machine: %s", out)
	}
}

// TestEscapeN47DockerOthers names containers of another sandbox, and its own, wherever a request can name one, and uses names
// that are too long or have control characters.
func TestEscapeN47DockerOthers(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	other := d.begin(`
create("victim", Cmd=["sh", "-c", "echo `+canary+` >/secret; exec sleep 1000"], Volumes={"/v": {}}); ask("POST", "/containers/victim/start")
print(ask("GET", "/containers/victim/json")[1]["Id"], ask("POST", "/containers/victim/exec", {"Cmd": ["cat", "/secret"], "AttachStdout": True})[1]["Id"]); input()
`, "--group", "shared")
	id, exec, _ := strings.Cut(other.line(), " ")
	d.want(d.attack(`
create("own", Volumes={"/v": {}}); ask("POST", "/containers/own/start"); own = ask("GET", "/containers/own/json")[1]["Id"]
for id in ("`+id+`", "`+id[:12]+`", "victim", own, "own"):
    for k in ({"VolumesFrom": [id]}, {"VolumesFrom": [id + ":ro"]}, {"PidMode": "container:" + id}, {"IpcMode": "container:" + id}, {"NetworkMode": "container:" + id},
              {"UTSMode": "container:" + id}, {"UsernsMode": "container:" + id}, {"CgroupnsMode": "container:" + id}):
        says(k, (host(**k)[0] - 403, ""))
for ref in ("`+id+`", "`+id[:12]+`", "victim", "%2e%2e%2fvictim", "`+id[:4]+`"):
    for method, path, body in (("POST", "exec", {"Cmd": ["cat", "/secret"]}), ("POST", "attach?stdin=1", None), ("GET", "logs?stdout=1", None), ("POST", "kill", None), ("POST", "rename?name=x", None),
                               ("POST", "wait", None), ("POST", "start", None), ("GET", "top", None), ("PUT", "archive?path=/", b""), ("POST", "resize?h=1&w=1", None)):
        says(ref + " " + path, (ask(method, "/containers/" + ref + "/" + path, body)[0] - 404, ""))
for path, body in (("start", {}), ("resize?h=1&w=1", None)): says("exec " + path, (ask("POST", "/exec/`+exec+`/" + path, body)[0] - 404, ""))
says("connect", (ask("POST", "/networks/bridge/connect", {"Container": "victim"})[0] - 404, ""))
import urllib.parse
for bad in ("x" * 255, "x\nforged: 1", "x\r\nX: y", "\x1b[2J", "\x7f", "x\x00y", "\u202e", "..", "x/y", "-x", "\udcff"):
    q = urllib.parse.quote(bad, errors="surrogateescape")
    says("name " + q, (create(q)[0] - 400, "")); says("rename " + q, (ask("POST", "/containers/own/rename?name=" + q)[0] - 400, ""))
    for what in ("volumes", "networks"): says(what + q, (ask("POST", "/" + what + "/create", json.dumps({"Name": bad}))[0] - 400, ""))
    says("image " + q, (create(Image=bad)[0] - 404, "")); says("tag " + q, (ask("POST", "/images/local/bb/tag?repo=" + q + "%20")[0] - 400, ""))
    says("build " + q, (ask("POST", "/build?t=" + q + "%20", b"")[0] - 400, ""))
    status, got = create("odd", Hostname=bad, Env=[bad + "=1"], Labels={bad: bad}, Cmd=["sleep", bad]); ask("POST", "/containers/odd/start")
    says("odd " + q, (0 if status in (201, 400) else status, "")); ask("DELETE", "/containers/odd?force=1")
says("alive", (ask("GET", "/containers/own/json")[0] - 200, ""))
`, "--group", "shared"), "0|")
	other.end()
}
