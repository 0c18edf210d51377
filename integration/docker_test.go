package integration

import (
	"fmt"
	"os"
	"path/filepath"
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
		{"docker start other; docker logs other 2>/dev/null; docker kill other; docker rm other", "other\nup\nup\nother\nother"},
		{"docker create --name c local/bb cat /f >/dev/null; echo early >/tmp/f; docker cp /tmp/f c:/f; docker start -a c; docker rm -f c", "early\nc"},
		{"docker run --rm nosuch true; echo $?; docker run --rm local/bb nosuch; echo $?", "…pull access denied…demesne pull…\n125\n…executable file not found in $PATH…\n127"},
		{"docker volume create vol; docker run --rm -v vol:/data local/bb sh -c 'echo kept >/data/f'; docker run --rm -v vol:/data:ro local/bb sh -c 'cat /data/f; echo x >/data/f'; docker volume ls -q; docker volume rm vol",
			"vol\n…Read-only file system\n…vol\nvol"},
		{"docker network create net >/dev/null; docker run -d --name s --network net --network-alias al local/bb sh -c 'while :; do echo answer | nc -l -p 99; done' >/dev/null", ""},
		{until("docker run --rm --network net local/bb nc al 99 | grep answer") + "; docker network ls -q | wc -l; docker network rm net", "answer\n3\n…active endpoints…"},
		{"docker rm -f s; docker network rm net; docker run --rm --network none local/bb wget -qO- http://al/ && echo reached", "s\nnet\n…"},
		{"docker run -d --name h --health-cmd 'test -e /ok' --health-interval 100ms local/bb sleep 1000 >/dev/null; docker inspect -f '{{.State.Health.Status}}' h", "starting"},
		{"docker exec h touch /ok; " + until("docker ps | grep -o '(healthy)'") + "; docker rm -f h", "(healthy)\nh"},
		{"docker run --rm --tmpfs /t:size=1m local/bb sh -c 'dd if=/dev/zero of=/t/x bs=1k count=2000 2>&1 | grep -o \"No space\"'", "No space"},
		{"docker tag local/bb mine:1; docker images --format '{{.Repository}}:{{.Tag}}'; docker rmi mine:1; docker rmi local/bb", "…mine:1…belongs to the sandbox's caller"},
		{"docker pull local/bb; docker pull other/image", "…Image is up to date…pull access denied…"},
		{"docker info --format '{{.Containers}} {{.OSType}}'", "0 linux"},
		{"docker events --since 1 --until $(( $(date +%s) + 600 )) --filter type=container --format '{{.Action}}' >/tmp/events & sleep 0; " +
			until("docker run --rm local/bb true; grep -q destroy /tmp/events") + "; kill $!; sort -u /tmp/events", "…destroy\ndie\nstart"},
	})
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
	d.file("ws/docker-compose.yml", strings.Replace(file, "cp /data/i /i;", "until cat /data/i >/i; do sleep .05; done;", 1), 0o644)
	d.file("ws/Dockerfile", "FROM local/bb\nCOPY seed/i /built\n", 0o644)
	d.file("ws/seed/i", "from the volume\n", 0o644)
	d.inside([]step{
		{"docker-compose up -d >/tmp/log 2>&1 || cat /tmp/log", ""},
		{"until curl -sf http://localhost:8000/i; do sleep .05; done", "from the volume"},
		{"docker-compose ps --services --filter status=running | sort; docker-compose exec -T web cat /built; docker-compose exec -T web env | grep ^A=", "api\ndb\nweb\nfrom the volume\nA=b"},
		{"docker-compose logs db | grep -c Attaching", "…"},
		{"docker-compose down -v -t 1 >/tmp/log 2>&1 || cat /tmp/log; docker ps -aq | wc -l; docker volume ls -q; docker network ls -q | wc -l", "0\n2"},
	}, "--workspace", ws)
}
