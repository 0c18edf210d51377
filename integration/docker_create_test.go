package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// create makes a persistent sandbox with a Docker socket, and returns functions that execute shell text in it and remove it.
func (d *dock) create(flags ...string) (id string, in func(script, want string)) {
	d.Helper()
	r := d.demesne(append([]string{"create", "--docker"}, flags...)...)
	if r.code != 0 || r.stderr != "" {
		d.Fatalf("create: %+v", r)
	}
	id = strings.TrimSpace(r.stdout)
	return id, func(script, want string) {
		d.Helper()
		if r := d.demesne("exec", id, "-c", "exec 2>&1; "+script); !matches(r.stdout+r.stderr, want) {
			d.Errorf("$ %s\nsays:\n%s\nand should say:\n%s", script, r.stdout+r.stderr, want)
		}
	}
}

// silent runs demesne, which succeeds in silence.
func (d *dock) silent(args ...string) {
	d.Helper()
	if r := d.demesne(args...); r.code != 0 || r.stderr != "" {
		d.Errorf("demesne %s: %+v", strings.Join(args, " "), r)
	}
}

// nothing checks that no process, sandbox, image and directory of a socket is left.
func (d *dock) nothing() {
	d.Helper()
	d.served(0)
	if r := d.demesne("ls", "-q"); r.stdout != "" {
		d.Errorf("sandboxes remain: %s", r.stdout)
	}
	if r := d.demesne("images"); strings.Contains(r.stdout, "demesne-docker") {
		d.Errorf("images remain: %s", r.stdout)
	}
	if left := d.outputs(); len(left) > 0 {
		d.Errorf("directories remain: %q", left)
	}
}

// served waits until there are n servers of sockets, with a socket each. A server that releases its lock is a process for a moment more.
func (d *dock) served(n int) {
	d.Helper()
	eventually(d, fmt.Sprint(n, " servers of sockets"), func() bool { return len(named("demesne-docker")) == n && len(d.sockets()) == n })
}

// outputs returns the directories of sandboxes and sockets.
func (d *dock) outputs() []string {
	found, _ := filepath.Glob(d.out + "/2*")
	return found
}

func (d *dock) sockets() []string {
	found, _ := filepath.Glob(d.out + "/*/docker.sock")
	return found
}

// restarted is what exec says of a sandbox that was stopped.
const restarted = "demesne: exec: sandbox … was stopped; it was started again with its files, without its earlier processes\n"

// TestDockerCreate uses the socket of a persistent sandbox with Docker's client and docker-compose, in calls of their own. stop and rm
// end all that its clients made.
func TestDockerCreate(t *testing.T) {
	d := newDock(t)
	program(d, "docker-compose")
	ws := d.mkdir("ws")
	d.file("ws/docker-compose.yml", "version: '3'\nservices:\n  db: {image: local/bb, command: sleep 1000, volumes: ['data:/data']}\nvolumes: {data: {}}\n", 0o644)
	id, in := d.create("--name", "dev", "--workspace", ws, "--mount", d.mkdir("data"))
	in("docker run -d --name web -p 8080:80 local/bb "+web+" >/dev/null; until docker logs web | grep up; do sleep .05; done", "…up\n")
	in("until curl -sf http://localhost:8080/; do sleep .05; done; curl -sS http://web/; docker ps --format '{{.Names}}'", "hello\nhello\nweb\n")
	in("docker volume create vol; docker run --rm -v vol:/v local/bb sh -c 'echo kept >/v/f'", "vol\n")
	in("docker run --rm -v vol:/v -v /workspace:/w local/bb sh -c 'cat /v/f; ls /w'", "kept\ndocker-compose.yml\n")
	in("echo FROM local/bb >/tmp/Dockerfile; docker build -qt mine /tmp 2>/dev/null; docker run --rm mine echo built", "sha256:…\nbuilt\n")
	in("docker-compose up -d >/tmp/log 2>&1 || cat /tmp/log", "")
	in("docker-compose exec -T db echo composed", "composed\n")
	in("ls -l /run/docker.sock; rm -f /run/docker.sock; mv /run/docker.sock /tmp/", "s…cannot remove…cannot move…")
	in("docker run --privileged local/bb true; docker run --rm -v /etc:/x local/bb true", "…privileged containers…only directories of the host that the sandbox itself has…")
	in("setsid docker events >/dev/null 2>&1 & docker run -d --name stay local/bb sleep 1000 >/dev/null", "")
	d.silent("stop", "dev")
	if left := d.sockets(); len(left) > 0 {
		t.Errorf("stop leaves %q", left)
	}
	d.served(0)
	if r := d.demesne("ls", "-q"); r.stdout != id+"\n" {
		t.Errorf("stop leaves %q", r.stdout)
	}
	in("docker ps -aq; docker volume ls -q; docker images -q mine; docker run --rm local/bb echo again", "again\n"+restarted)
	d.silent("rm", id)
	d.nothing()
	for ttl := time.Second; ; ttl *= 4 { // on a slow machine the sandbox may expire before the command
		id, _ = d.create("--ttl", ttl.String())
		r := d.demesne("exec", id, "-c", "docker run -d local/bb sleep 1000")
		if r.code == 0 {
			break
		}
		if ttl > patience {
			t.Fatalf("%+v", r)
		}
	}
	eventually(t, "an expired sandbox to end with its containers", func() bool {
		return len(d.sockets())+len(named("demesne-docker")) == 0 && d.demesne("ls", "-q").stdout == ""
	})
	for _, out := range d.outputs() { // of an expired sandbox, for gc
		os.Remove(out)
	}
	d.nothing()
}

// TestDockerCreateKilled kills the server of a socket, the runner, and both with all sandboxes, as the end of the machine does. exec says
// what to do, and nothing is left in the end.
func TestDockerCreateKilled(t *testing.T) {
	d := newDock(t)
	id, in := d.create()
	kill := func(pids []int) {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	in("docker run -d -v vol:/v local/bb sleep 1000", "…\n")
	kill(named("demesne-docker"))
	eventually(t, "the containers to end", func() bool { return d.demesne("ls", "-q").stdout == id+"\n" })
	in("docker ps", "Cannot connect…demesne: exec: the Docker socket of sandbox "+id+" is dead: its server was killed, and its containers ended\n"+
		"hint: after demesne stop "+id+" the next command starts the sandbox with a new one\n")
	d.silent("stop", id)
	in("docker ps -q; docker run -d local/bb sleep 1000 >/dev/null", restarted)
	kill(runners(true))
	eventually(t, "the server to end", func() bool { return len(named("demesne-docker"))+len(d.sockets()) == 0 })
	in("docker ps -q; docker run -d local/bb sleep 1000 >/dev/null", restarted)
	kill(append(named("demesne-docker"), runners(true)...))
	eventually(t, "the sandboxes to end", func() bool { return len(named("demesne-init")) == 0 })
	if len(d.sockets()) != 1 {
		t.Errorf("a killed server leaves %q", d.sockets())
	}
	in("docker ps -q; docker run --rm local/bb echo again", "again\n"+restarted)
	kill(named("demesne-docker"))
	d.silent("rm", id)
	for round := range 8 { // a killed create leaves a sandbox that rm ends, or nothing that serves
		cmd := d.command("demesne", "create", "--docker", "--out", d.mkdir("out"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 10 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		eventually(t, "its server to end", func() bool {
			if made := strings.Fields(d.demesne("ls", "-q").stdout); len(made) > 0 {
				d.demesne(append([]string{"rm", "--force"}, made...)...)
			}
			return len(descendants()) == 0 // also one that has no name yet
		})
	}
	if left := d.sockets(); len(left) > 0 {
		t.Errorf("killed calls leave %q", left)
	}
}

// TestDockerCreateTogether makes the sandbox of a key twice at once, and starts a stopped one twice at once. Each has one server.
func TestDockerCreateTogether(t *testing.T) {
	d := newDock(t)
	together := func(args ...string) (all []result) {
		var both sync.WaitGroup
		all = make([]result, 3)
		for i := range all {
			both.Go(func() { all[i] = d.demesne(args...) })
		}
		both.Wait()
		d.served(1)
		return all
	}
	made := together("create", "--docker", "--key", "k")
	for _, r := range made {
		if r.code != 0 || r.stdout != made[0].stdout {
			t.Errorf("%+v", r)
		}
	}
	d.silent("create", "--key", "other", "--name", "other")
	if r := d.demesne("create", "--docker", "--key", "other"); r.code == 0 || !strings.Contains(r.stderr, "docker") {
		t.Errorf("of one without a socket: %+v", r)
	}
	d.silent("rm", "other")
	d.silent("create", "--docker", "--group", "shared", "--name", "other")
	d.silent("exec", "other.shared", "--", "docker", "run", "--rm", "local/bb", "true")
	d.silent("rm", "other.shared")
	if r := d.demesne("run", "--docker", "--key", "k", "--", "docker", "ps", "-q"); r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("run: %+v", r)
	}
	for range 3 {
		d.silent("stop", strings.TrimSpace(made[0].stdout))
		for _, r := range together("exec", "--key", "k", "--", "docker", "run", "--rm", "local/bb", "echo", "ran") {
			if r.code != 0 || r.stdout != "ran\n" {
				t.Errorf("%+v", r)
			}
		}
	}
	d.silent("rm", strings.TrimSpace(made[0].stdout))
	d.nothing()
}

// TestDockerCreateRefused makes no sandbox with a Docker socket: where a directory cannot be made, beside a fork, without namespaces.
func TestDockerCreateRefused(t *testing.T) {
	d := newDock(t)
	id, _ := d.create()
	for _, r := range []result{d.demesne("fork", id), d.demesne("create", "--docker", "--mount", "/nosuch"), d.demesne("create", "--docker", "--memory", "1k")} {
		if r.code == 0 || r.stdout != "" {
			t.Errorf("%+v", r)
		}
	}
	if r := d.demesne("fork", id); !strings.Contains(r.stderr, "it has a Docker socket, whose containers cannot be forked") {
		t.Errorf("%+v", r)
	}
	snapshot := d.demesne("snapshot", id)
	if r := d.demesne("fork", strings.TrimSpace(snapshot.stdout)); snapshot.code != 0 || !strings.Contains(r.stderr, "Docker socket") {
		t.Errorf("%+v %+v", snapshot, r)
	}
	d.silent("rm", id, strings.TrimSpace(snapshot.stdout))
	d.extra = append(d.extra, "DEMESNE_LIBEXEC="+d.programsWithout("demesne-frontend"))
	if r := d.demesne("create", "--docker"); r.code == 0 || !strings.Contains(r.stderr, "demesne-frontend") {
		t.Errorf("%+v", r)
	}
	d.nothing()
}

// programsWithout returns a directory with demesne's programs but one.
func (d *dock) programsWithout(name string) (dir string) {
	d.Helper()
	dir = d.mkdir("libexec")
	for _, program := range names(bin) {
		if program != name {
			os.Symlink(filepath.Join(bin, program), filepath.Join(dir, program))
		}
	}
	return dir
}

// TestEscapeN47DockerRules changes the rules of a sandbox that has a Docker socket: later containers have the rules that hold then,
// and no more.
func TestEscapeN47DockerRules(t *testing.T) {
	onInternet(t, func(n *internet) {
		d := &dock{box: n.box}
		program(d, "docker")
		d.importImage("local/bb")
		id, in := d.create("--allow-domain", "good.test")
		get := func(name string) string { return "docker run --rm local/bb wget -qO- http://" + name + "/" }
		in(get("good.test"), "hello from good.test\n")
		in(get("dark.test"), "…403…")
		d.silent("egress", "deny", id, "good.test")
		d.silent("egress", "allow", id, "dark.test")
		in(get("good.test"), "…403…")
		in(get("dark.test"), "hello from dark.test\n")
		d.silent("rm", id)
		d.nothing()
	})
}
