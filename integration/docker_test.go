package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// dock is a box with local/bb, an image of busybox with its commands, and clients of Docker in sandboxes.
type dock struct {
	*box
	image string // its digest
}

func newDock(t testing.TB) *dock {
	t.Helper()
	b := newBox(t)
	program(b, "docker")
	d := &dock{box: b}
	d.importImage("local/bb")
	return d
}

// importImage imports busybox under a name.
func (d *dock) importImage(name string) {
	d.Helper()
	entries := (&gallery{box: d.box}).busybox()
	for _, applet := range strings.Fields("sh echo cat cp ls sleep id wget nc httpd grep tr head dd mkdir stat touch hostname ln test kill tar env true wc") {
		entries = append(entries, fixture.Link("bin/"+applet, "busybox"))
	}
	entries = append(entries, fixture.Dir("etc"), fixture.File("etc/passwd", "root:x:0:0:root:/:/bin/sh\n"), fixture.Dir("tmp"))
	raw, err := fixture.Tar(entries...)
	if err != nil {
		d.Fatal(err)
	}
	r := d.demesne("import", "-q", d.file("bb.tar", string(raw), 0o644), name)
	if r.code != 0 {
		d.Fatalf("%+v", r)
	}
	d.image = strings.TrimSpace(r.stdout)
}

// inside runs the steps in one sandbox with a Docker socket. Each must print what its step says, as in a document.
func (d *dock) inside(steps []step, flags ...string) {
	d.Helper()
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "exec >/out/%d 2>&1 </dev/null\n%s\n", i, s.command)
	}
	out := filepath.Join(d.dir, "said")
	os.RemoveAll(out)
	args := append([]string{"run", "--docker", "--timeout", "2m", "--in", d.file("script", script.String(), 0o644), "--out", out}, flags...)
	if r := d.demesne(append(args, "--", "bash", "/in/script")...); r.stderr != "" {
		d.Errorf("stderr: %s", r.stderr)
	}
	for i, s := range steps {
		got, err := os.ReadFile(fmt.Sprintf("%s/%d", out, i))
		if err != nil || !matches(string(got), s.want) {
			d.Errorf("$ %s\nsays:\n%s\nand should say:\n%s", s.command, got, s.want)
		}
	}
	if r := d.demesne("ls", "-q"); r.stdout != "" {
		d.Errorf("containers remain: %s", r.stdout)
	}
	if r := d.demesne("images"); strings.Contains(r.stdout, "demesne-docker") {
		d.Errorf("images remain: %s", r.stdout)
	}
	if left, _ := filepath.Glob(d.out + "/2*"); len(left) > 0 {
		d.Errorf("directories remain: %q", left)
	}
}

// web is a command that serves a text on port 80.
const web = `sh -c 'mkdir /w; echo hello >/w/index.html; echo up; exec httpd -f -p 80 -h /w'`

// TestDocker uses the socket with Docker's own client: containers, their streams and exit codes, exec, cp, logs, ports, names,
// volumes, networks, images and health.
func TestDocker(t *testing.T) {
	d := newDock(t)
	until := func(what string) string { return "until " + what + "; do sleep .05; done" }
	d.inside([]step{
		{"docker version --format '{{.Server.Version}} {{.Server.APIVersion}}'", "25.0.0-demesne 1.4…"},
		{"docker run --rm local/bb echo hi", "hi"},
		{"docker run --rm local/bb sh -c 'echo out; echo err >&2; exit 7' 2>/dev/null; echo $?", "out\n7"},
		{"echo piped | docker run -i --rm local/bb sh -c 'cat; echo end'", "piped\nend"},
		{"docker run --rm -t local/bb sh -c 'test -t 0 && test -t 1 && echo terminal'", "terminal"},
		{"docker run --rm -e A=b -w /tmp --hostname box --user 5:6 local/bb sh -c 'echo $A $PWD $(hostname) $(id -u):$(id -g)'", "b /tmp box 5:6"},
		{"docker run --rm local/bb dd if=/dev/zero bs=1k count=4000 2>/dev/null | wc -c", "4096000"},
		{"docker run -d --name web -p 8080:80 -p 81 local/bb " + web + " >/dev/null; " + until("docker logs web | grep up"), "up"},
		{"docker ps --format '{{.Names}} {{.Image}} {{.Ports}}'", "web local/bb 0.0.0.0:8080->80/tcp, 0.0.0.0:…->81/tcp"},
		{until("docker run --rm local/bb wget -qO- http://web/"), "…hello"},
		{"curl -sS http://localhost:8080/ http://web/", "hello\nhello"},
		{"docker exec web cat /w/index.html; docker exec web sh -c 'exit 3'; echo $?", "hello\n3"},
		{"echo in | docker exec -i -e X=y web sh -c 'cat; echo $X'", "in\ny"},
		{"docker exec -u 5 web id -u; docker exec web nosuch; echo $?", "5\n…not found…\n127"},
		{"mkdir -p /tmp/d/e; echo file >/tmp/d/e/f; docker cp /tmp/d web:/tmp/; docker exec web cat /tmp/d/e/f; docker cp web:/tmp/d/e/f /tmp/g; cat /tmp/g; docker cp web:/tmp/d - | tar t", "file\nfile\nd/\nd/e/\nd/e/f"},
		{"docker cp web:/nosuch /tmp/; echo $?", "…Could not find the file /nosuch in container …\n1"},
		{"docker inspect -f '{{.State.Status}} {{.Config.Image}} {{.Image}}' web", "running local/bb " + d.image},
		{"docker rm web; docker rename web other; docker stop -t 1 other; docker ps -aq --filter name=other | wc -l; docker wait other", "…container is running…\nother\n1\n1…"},
		{"docker start other; " + until("test $(docker logs other 2>/dev/null | wc -l) = 2") + "; docker logs other 2>/dev/null; docker kill other; docker rm other", "other\nup\nup\nother\nother"},
		{"docker create --name c local/bb cat /f >/dev/null; echo early >/tmp/f; docker cp /tmp/f c:/f; docker start -a c; docker rm -f c", "early\nc"},
		{"docker run --rm nosuch true; echo $?; docker run --rm local/bb nosuch; echo $?", "…pull access denied…demesne pull…\n125\n…executable file not found in $PATH…\n127"},
		{"docker volume create vol; docker run --rm -v vol:/data local/bb sh -c 'echo kept >/data/f'; docker run --rm -v vol:/data:ro local/bb sh -c 'cat /data/f; echo x >/data/f'; docker volume ls -q; docker volume rm vol",
			"vol\n…Read-only file system\n…vol\nvol"},
		{"docker network create net >/dev/null; docker run -d --name s --network net --network-alias al local/bb sh -c 'while :; do echo answer | nc -l -p 99; done' >/dev/null", ""},
		{until("docker run --rm --network net local/bb nc al 99 | grep answer") + "; docker network ls -q | wc -l; docker network rm net", "answer\n3\n…active endpoints…"},
		{"docker rm -f s; docker network rm net; docker run --rm --network none local/bb wget -qO- http://al/ && echo reached", "s\nnet\n…"},
		{"docker run -d --name h --health-cmd 'test -e /ok' --health-interval 100ms --health-retries 99999 local/bb sleep 1000 >/dev/null; docker inspect -f '{{.State.Health.Status}}' h", "starting"},
		{"docker exec h touch /ok; " + until("docker ps | grep -o '(healthy)'") + "; docker rm -f h", "(healthy)\nh"},
		{"docker run --rm --tmpfs /t:size=1m local/bb sh -c 'dd if=/dev/zero of=/t/x bs=1k count=2000 2>&1 | grep -o \"No space\"'", "No space"},
		{"docker tag local/bb mine:1; docker images --format '{{.Repository}}:{{.Tag}}'; docker rmi mine:1; docker rmi local/bb", "…mine:1…belongs to the sandbox's caller"},
		{"docker pull local/bb; docker pull other/image", "…Image is up to date…pull access denied…"},
		{"docker info --format '{{.Containers}} {{.OSType}}'", "0 linux"},
		{"docker events --since 1 --until $(( $(date +%s) + 600 )) --filter type=container --format '{{.Action}}' >/tmp/events & sleep 0; " +
			until("docker run --rm local/bb true; sort -u /tmp/events | tail -n 3 | tr -d '\n' | grep destroydiestart") + "; kill $!", "destroydiestart"},
	})
}

// TestDockerSpare runs containers of one kind. From the third on they use a sandbox that was made before; each has its own id as
// its host name, and files that no other container wrote.
func TestDockerSpare(t *testing.T) {
	d := newDock(t)
	cmd := d.command("demesne", "run", "--docker", "-i", "--", "bash", "-c", `
each() { docker run --rm --cidfile /tmp/$1 local/bb sh -c 'hostname; ls /tmp; echo >/tmp/left'; cut -c1-12 /tmp/$1; }
each 1; each 2; read; each 3; docker run --rm local/bb cat /tmp/left; docker run --rm --memory 16m local/bb hostname; docker ps -aq`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	says := bufio.NewScanner(pipe)
	line := func() string { says.Scan(); return says.Text() }
	var last string
	for range 2 {
		var host string
		if host, last = line(), line(); host != last {
			t.Errorf("host name %q of container %q", host, last)
		}
	}
	spare := ""
	for spare == "" || spare == last {
		_, spare, _ = strings.Cut(d.demesne("ls").stdout, "/out-")
		spare, _, _ = strings.Cut(spare, "\n")
	}
	io.WriteString(in, "\n")
	if host, id := line(), line(); host != spare || id != spare {
		t.Errorf("host name %q of container %q, and the spare is %q", host, id, spare)
	}
	if other := line(); other == spare || len(other) != 12 || says.Scan() {
		t.Errorf("host name %q of a container of another kind, then %q", other, says.Text())
	}
	cmd.Wait()
	if r := d.demesne("ls", "-q"); r.stdout != "" {
		t.Errorf("sandboxes remain: %s", r.stdout)
	}
}

// TestDockerBuild builds images in a sandbox, and uses them. The store of the caller keeps none.
func TestDockerBuild(t *testing.T) {
	d := newDock(t)
	d.inside([]step{
		{"cd /tmp; mkdir b; cd b; printf 'FROM local/bb\\nARG A\\nCOPY x /x\\nRUN cat /x >/y; echo $A >>/y\\nLABEL l=m\\nCMD [\"cat\",\"/y\"]\\n' >Dockerfile; echo text >x", ""},
		{"docker build -q --build-arg A=arg -t my/app . 2>/dev/null && docker run --rm my/app", "sha256:…\ntext\narg"},
		{"printf 'FROM my/app\\nRUN echo more >>/y\\n' | docker build -q -t my/more - 2>/dev/null && docker run --rm my/more", "sha256:…\ntext\narg\nmore"},
		{"docker images -q my/app | wc -l; docker images --filter label=l=m --format '{{.Repository}}' | sort", "1\nmy/app\nmy/more"},
		{"printf 'FROM local/bb\\nRUN exit 3\\n' >Dockerfile; docker build . 2>&1 | tail -1", "…RUN exit 3…"},
		{"printf 'FROM alpine\\n' >Dockerfile; docker build . 2>&1 | tail -1", "…alpine…"},
	})
}

// TestDockerCompose runs three services with docker-compose.
func TestDockerCompose(t *testing.T) {
	d := newDock(t)
	program(d, "docker-compose")
	wait := func(host string) string {
		return "sh -c 'while ! wget -qO /tmp/i http://" + host + "/i; do sleep .05; done; httpd -f -p 80 -h /tmp'"
	}
	file := `version: "3"
services:
  db: {image: local/bb, command: "sh -c 'cp /data/i /i; exec httpd -f -p 80 -h /'", volumes: ["data:/data", "./seed:/seed:ro"]}
  seed: {image: local/bb, command: "cp /seed/i /data/i", volumes: ["data:/data", "./seed:/seed:ro"]}
  api: {image: local/bb, depends_on: [db], command: "` + wait("db") + `"}
  web: {build: ., depends_on: [api], ports: ["8000:80"], environment: {A: b}, command: "` + wait("api") + `"}
volumes: {data: {}}
`
	ws := d.mkdir("ws")
	d.file("ws/docker-compose.yml", strings.Replace(file, "cp /data/i /i;", "until grep . /data/i >/i; do sleep .05; done;", 1), 0o644)
	d.file("ws/Dockerfile", "FROM local/bb\nCOPY seed/i /built\n", 0o644)
	d.file("ws/seed/i", "from the volume\n", 0o644)
	d.inside([]step{
		{"docker-compose up -d >/tmp/log 2>&1 || cat /tmp/log", ""},
		{"until curl -sf http://localhost:8000/i; do sleep .05; done", "from the volume"},
		{"until test $(docker ps -q | wc -l) = 3; do sleep .05; done; docker-compose ps --services --filter status=running | sort; docker-compose exec -T web sh -c 'cat /built; echo A=$A'", "api\ndb\nweb\nfrom the volume\nA=b"},
		{"docker-compose down -v -t 1 >/tmp/log 2>&1 || cat /tmp/log; docker ps -aq | wc -l; docker volume ls -q; docker network ls -q | wc -l", "0\n2"},
	}, "--workspace", ws)
}

// hostile is a client in a sandbox that sends requests of its own: ask returns the status and the answer.
const hostile = `
import http.client, io, json, os, socket, struct, sys, tarfile, threading
class Conn(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.settimeout(60); self.sock.connect("/run/docker.sock")
def ask(method, path, body=None, headers={}):
    c = Conn("d")
    try:
        c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers); r = c.getresponse()
        text = r.read().decode("utf-8", "replace")
    except OSError as e: return 0, type(e).__name__
    finally: c.close()
    try: return r.status, json.loads(text)
    except ValueError: return r.status, text
def create(name="", **k):
    k = {"Image": "local/bb", "Cmd": ["sleep", "1000"], **k}
    return ask("POST", "/containers/create?name=" + name, k)
def host(**k): return create(HostConfig=k)
def says(what, got):
    status, a = got
    print(what, status, a.get("message", "") if isinstance(a, dict) else a, sep="|", flush=True)
`

// attack executes Python with these functions in a sandbox with a Docker socket, and returns the lines of its output.
func (d *dock) attack(script string, flags ...string) []string {
	d.Helper()
	args := append([]string{"run", "--docker", "--timeout", "2m", "--in", d.file("attack.py", hostile+script, 0o644)}, flags...)
	r := d.demesne(append(args, "--", "python3", "/in/attack.py")...)
	if r.code != 0 {
		d.Fatalf("%+v", r)
	}
	return strings.Split(strings.TrimSpace(r.stdout), "\n")
}

// want checks that each line of an attack has the wanted text after the first bar.
func (d *dock) want(lines []string, want string) {
	d.Helper()
	for _, line := range lines {
		what, said, _ := strings.Cut(line, "|")
		if !matches(said, want) {
			d.Errorf("%s: %s, want %s", what, said, want)
		}
	}
}

// TestEscapeP32Docker asks a Docker socket for privileges, and for more than the sandbox has. Each privilege is refused, and
// none is ignored. Limits are summed.
func TestEscapeP32Docker(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	d.want(d.attack(`
for k in ({"Privileged": True}, {"NetworkMode": "host"}, {"NetworkMode": "container:x"}, {"PidMode": "host"}, {"IpcMode": "host"}, {"UTSMode": "host"},
          {"UsernsMode": "host"}, {"CgroupnsMode": "host"}, {"CapAdd": ["SYS_ADMIN"]}, {"Devices": [{"PathOnHost": "/dev/kmsg"}]},
          {"DeviceRequests": [{"Count": -1}]}, {"DeviceCgroupRules": ["a *:* rwm"]}, {"SecurityOpt": ["seccomp=unconfined"]}, {"SecurityOpt": ["apparmor=unconfined"]},
          {"Sysctls": {"kernel.x": "1"}}, {"CgroupParent": "/"}, {"Runtime": "other"}, {"VolumesFrom": ["x"]}, {"ReadonlyRootfs": True}, {"OomKillDisable": True}):
    says(k, host(**k))
c = create("c")[1]["Id"]; ask("POST", "/containers/c/start")
says("exec", ask("POST", "/containers/c/exec", {"Cmd": ["id"], "Privileged": True}))
says("volume", ask("POST", "/volumes/create", {"Name": "vv", "DriverOpts": {"type": "none", "o": "bind", "device": "/"}}))
says("network", ask("POST", "/networks/create", {"Name": "nn", "Driver": "macvlan"}))
says("push", ask("POST", "/images/local/bb/push"))
says("rmi", ask("DELETE", "/images/local/bb"))
says("remote", ask("POST", "/build?remote=http://example.com/"))
says("buildkit", ask("POST", "/build?version=2"))
`), "403|…")
	lines := d.attack(`
for k in ({"Memory": 1 << 40}, {"PidsLimit": 1 << 20}, {"NanoCpus": 10**12}, {"StorageOpt": {"size": "1t"}}): says(k, host(**k))
made = 0
while create()[0] == 201: made += 1
says(made, create())
for _ in range(100): create()
says("after hundreds", create())
`, "--memory", "1g", "--cpus", "2", "--pids", "600", "--disk", "1g")
	d.want(lines[:4], "409|the … limits of all containers together would be …, and the sandbox has … for them…")
	d.want(lines[4:], "409|the sandbox cannot spare these limits: …")
	if !strings.HasPrefix(lines[4], "7|") { // the last eighth is the sandbox's own
		d.Errorf("of containers with an eighth of the limits, there fit %s", lines[4])
	}
	d.want(d.attack(`
while create(HostConfig={"Memory": 4 << 20, "PidsLimit": 4, "StorageOpt": {"size": "1m"}})[0] == 201: pass
says("containers", create(HostConfig={"Memory": 4 << 20, "PidsLimit": 4, "StorageOpt": {"size": "1m"}}))
n = 0
while ask("POST", "/networks/create", {"Name": "n%d" % n})[0] == 201: n += 1
says("networks", ask("POST", "/networks/create", {"Name": "xx"}))
`, "--memory", "2g", "--pids", "4096", "--disk", "2g"), "409|…exist already…")
	d.want(d.attack(`
# A limit of a container is the kernel's: the shell cannot fork.
c = create("c", Cmd=["sh", "-c", "i=0; while test $i -lt 60; do sleep 100 & i=$((i+1)); done; echo all"], HostConfig={"PidsLimit": 8, "AutoRemove": False})
ask("POST", "/containers/c/start"); ask("POST", "/containers/c/wait")
print("pids", "fork" in ask("GET", "/containers/c/logs?stdout=1&stderr=1")[1], sep="|")
`), "True")
}

// TestEscapeF45Docker asks a Docker socket for files of the machine: by binds, links, names, archives and contexts of builds.
func TestEscapeF45Docker(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	ws := d.mkdir("ws")
	d.file("ws/hooks/h", "", 0o644)
	d.file("outside/secret", canary, 0o644)
	lines := d.attack(`
def bind(source, target="/x", **k): return host(Mounts=[{"Type": "bind", "Source": source, "Target": target, **k}])
os.symlink("/", "/workspace/root"); os.symlink("`+d.dir+`/outside", "/workspace/out"); os.mkdir("/workspace/dir")
for source in ("/", "/etc", "/root", "/out", "`+d.dir+`", "`+d.dir+`/outside", "/workspace/../etc", "/workspace/..", "/proc/1/root", "/in/../etc", "/run", "/cow"):
    says("bind " + source, bind(source)); says("binds " + source, host(Binds=[source + ":/x"]))
for source in ("/workspace/root", "/workspace/root/etc", "/workspace/out", "/workspace/out/secret", "/workspace/missing"):
    says("link " + source, bind(source))
for target in ("relative", "", "../x"): says("target " + target, host(Mounts=[{"Type": "volume", "Source": "vv", "Target": target}]))
for name in ("../x", "a/../../b", "..", "/x", "a b", "%2e%2e", "x" * 200, "\x00"):
    if name != "/x": says("volume " + repr(name), ask("POST", "/volumes/create", {"Name": name}))
    if name != "/x": says("network " + repr(name), ask("POST", "/networks/create", {"Name": name}))
import urllib.parse
for name in ("../x", "a/../../b", "..", "a b", "x" * 200): says("name " + name, create(urllib.parse.quote(name)))
for image in ("dir:/", "dir:`+d.dir+`/outside", "host", "oci:`+d.dir+`", "docker-archive:/etc/passwd", "../x", "oci-archive:`+d.dir+`/bb.tar"):
    says("image " + image, create(Image=image)); says("inspect " + image, ask("GET", "/images/" + urllib.parse.quote(image) + "/json"))
for file in ("../../../etc/passwd", "/etc/passwd"): says("dockerfile " + file, ask("POST", "/build?dockerfile=" + file, b""))
says("hooks", (403 if ask("POST", "/containers/create?name=k", {"Image": "local/bb", "Cmd": ["sh", "-c", "echo x >/w/hooks/h; echo x >/w/hooks/i; mv /w/hooks /w/old; echo x >/w/f"], "HostConfig": {"Binds": ["/workspace:/w"]}})[0] == 201 else 0, ""))
says("hooks", (ask("POST", "/containers/k/start")[0] + 199, "")); says("hooks", (ask("POST", "/containers/k/wait")[0] + 203, ""))
`, "--workspace", ws, "--mount", ws+"/hooks:/workspace/hooks:ro", "--mount", d.mkdir("cow")+":/cow:cow")
	if text, err := os.ReadFile(ws + "/hooks/h"); err != nil || len(text) > 0 || len(names(ws+"/hooks")) != 1 {
		t.Errorf("a container changed what its parent may not: %q, %v", text, err)
	}
	if text, err := os.ReadFile(ws + "/f"); err != nil || string(text) != "x\n" {
		t.Errorf("a container cannot write where its parent can: %q, %v", text, err)
	}
	d.want(slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.Contains(line, "|307|<a") }), "40…|…") // 307: to a path without ..
	lines = d.attack(`
def tar(*entries):
    b = io.BytesIO(); t = tarfile.open(fileobj=b, mode="w")
    for name, to, text in entries:
        i = tarfile.TarInfo(name); i.mode = 0o4755
        if to: i.type, i.linkname = tarfile.SYMTYPE, to
        i.size = len(text); t.addfile(i, io.BytesIO(text.encode()))
    t.close(); return b.getvalue()
create("c"); ask("POST", "/containers/c/start")
for at, t in (("/", tar(("../../../../../../tmp/` + canary + `", "", "x"), ("` + d.dir + `/made", "", "x"), ("l", "/", ""), ("l/` + canary + `", "", "x"))), ("/../../..", tar(("a", "", "x"))), ("/l/../..", tar(("b", "", "x")))):
    ask("PUT", "/containers/c/archive?path=" + at, t)
print("cp", ask("GET", "/containers/c/archive?path=` + d.dir + `/outside/secret")[0], sep="|")
print("cp link", ask("GET", "/containers/c/archive?path=/l` + d.dir + `/outside/secret")[0], sep="|")
says("build link", ask("POST", "/build", tar(("Dockerfile", "", "FROM local/bb\nCOPY s /s\nRUN cat /s"), ("s", "` + d.dir + `/outside/secret", ""))))
says("build parent", ask("POST", "/build", tar(("Dockerfile", "", "FROM local/bb\nCOPY ../outside/secret /s\nRUN cat /s"), ("../../../../outside/made", "", "x"))))
says("build image", ask("POST", "/build", tar(("Dockerfile", "", "FROM registry.example.test/x:secret"))))
says("build dir", ask("POST", "/build", tar(("Dockerfile", "", "FROM dir:` + d.dir + `/outside\nCOPY . /"))))
`)
	for _, line := range lines {
		if strings.Contains(line, canary) || strings.Contains(line, "Successfully") || strings.HasPrefix(line, "cp") && !strings.HasSuffix(line, "|404") {
			d.Errorf("%s", line)
		}
	}
	for _, path := range []string{"/tmp/" + canary, "/" + canary, d.dir + "/made", d.dir + "/outside/made", "/a", "/b"} {
		if _, err := os.Lstat(path); err == nil {
			d.Errorf("%s was made", path)
		}
	}
}

// TestEscapeN47Docker tries to reach containers and ports of another sandbox's socket, and to keep the socket busy.
func TestEscapeN47Docker(t *testing.T) {
	d := newDock(t)
	program(d, "python3")
	first := d.command("demesne", "run", "--docker", "--group", "shared", "--", "sh", "-c",
		`docker volume create vic >&2; docker run -d --name db -p 7070:80 local/bb sleep 1000 >&2; docker ps >&2; docker create --name victim local/bb true; sleep 1000`)
	out, err := first.StdoutPipe()
	if err == nil {
		err = first.Start()
	}
	if err != nil {
		d.Fatal(err)
	}
	id := make([]byte, 64)
	if _, err := io.ReadFull(out, id); err != nil {
		d.Fatal(err)
	}
	lines := d.attack(`
id = "`+string(id)+`"
for ref in (id, id[:12], "victim", "../"+id): says(ref, ask("GET", "/containers/" + ref + "/json")); says(ref, ask("DELETE", "/containers/" + ref + "?force=1")); says(ref, ask("GET", "/containers/" + ref + "/archive?path=/"))
says("volume", ask("GET", "/volumes/vic"))
`, "--group", "shared")
	for _, line := range lines {
		if line != "" && !strings.Contains(line, "|404|") && !strings.Contains(line, "|307|") {
			d.Errorf("%s", line)
		}
	}
	d.want(d.attack(`
says("list", (len(ask("GET", "/containers/json?all=1")[1]), ""))
create("own", ExposedPorts={"80/tcp": {}}, HostConfig={"PortBindings": {"80/tcp": [{"HostPort": "7070"}]}})
says("port", (ask("POST", "/containers/own/start")[0] - 204, ""))
`, "--group", "shared"), "0|") // the port is on this sandbox's own loopback
	d.want(d.attack(`
create("c", OpenStdin=True); ask("POST", "/containers/c/start")
create("loud", Cmd=["sh", "-c", "while :; do echo "+"x"*1000+"; done"]); ask("POST", "/containers/loud/start")
held = []
for path in ["/containers/c/attach?stream=1&stdin=1&stdout=1", "/containers/loud/attach?stream=1&stdout=1", "/events", "/containers/loud/logs?follow=1&stdout=1"] * 50: # none of them is read
    s = socket.socket(socket.AF_UNIX); s.connect("/run/docker.sock"); held.append(s)
    s.sendall(("%s %s HTTP/1.1\r\nHost: d\r\nUpgrade: tcp\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n" % ("POST" if "attach" in path else "GET", path)).encode())
says("still", (ask("GET", "/_ping")[0] - 200, ""))
says("body", (ask("POST", "/containers/create", {"Image": "x" * (1 << 20)})[0] in (0, 413) and 0, ""))
says("deep", (ask("POST", "/containers/create", b'{"a":' * 100000)[0] - 400, ""))
says("types", (ask("POST", "/containers/create", b'{"Image":7,"HostConfig":[]}')[0] - 400, ""))
says("removed", (ask("DELETE", "/containers/loud?force=1")[0] - 204, ""))
`), "0|")
	first.Process.Signal(os.Interrupt)
	first.Process.Signal(os.Interrupt)
	first.Wait()
}

// TestDockerAgent lets a coding agent run a container on the project's files.
func TestDockerAgent(t *testing.T) {
	b, _, repo := newProgramBox(t, fixture.Steps(
		fixture.Answer{Calls: []fixture.ToolCall{{Run: `docker run --rm -v "$PWD:/w" local/bb sh -c 'echo from a container > /w/made.txt'`}}}, fixture.Answer{Text: "done"}))
	program(b, "docker")
	(&dock{box: b}).importImage("local/bb")
	cmd := b.command("demesne", "agent", "--docker", "claude", "-p", "make it")
	cmd.Dir = repo
	r := b.finish(cmd)
	made, err := os.ReadFile(repo + "/made.txt")
	if err != nil || string(made) != "from a container\n" {
		t.Errorf("%q, %v: %+v", made, err, r)
	}
}
