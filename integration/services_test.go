package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// services makes a directory of services: paths that end in ! are executable. It returns its path in the sandbox, with the
// flags that show it.
func (b *box) services(list map[string]string) (dir string, flags []string) {
	b.Helper()
	from := b.mkdir("services")
	for name, text := range list {
		name, runs := strings.CutSuffix(name, "!")
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if runs {
			mode, text = 0o755, "#!/bin/sh\n"+text
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			b.Fatal(err)
		}
	}
	return "/in/services", []string{"--in", from}
}

// logged is a service that writes when it starts and when SIGTERM ends it.
func logged(name string) string {
	return fmt.Sprintf("trap 'echo stop %[1]s >>/out/order; exit' TERM; echo \"start %[1]s $X\" >>/out/order; echo hello from %[1]s\nwhile :; do sleep 0.05; done\n", name)
}

// TestServices starts the scripts and services of a directory in order, waits for a port, keeps a log of each, and stops them in the reverse order.
func TestServices(t *testing.T) {
	b := newBox(t)
	dir, flags := b.services(map[string]string{
		"init.d/10-set.sh": "export X=set\n", "init.d/20-show.sh!": "echo \"init $X\" >>/out/order\n", "init.d/30-more!": "echo more >>/out/order; X=lost\n", "init.d/README": "no\n",
		"a!": logged("a"), "b/run!": "pwd >>/tmp/b\n" + logged("b"), "c.conf": "; comment\n[program:see]\ncommand=/bin/sh -c 'exec /in/services/.c' ; why\ndirectory=/tmp\nautorestart=true\n", ".c!": logged("c"),
		"app.supervisor.d/d.conf": "[program:off]\ncommand=/in/services/.c\nautostart=false\n", "e/run!": logged("e"), "e/down": "", "README": "no\n", "f.sh": "no\n",
		"port!": "sleep 0.5; exec python3 -m http.server --bind 127.0.0.1 8123\n",
	})
	run := append(append([]string{"run", "--out", b.out, "--init=" + dir + ":8123"}, flags...), "--", "/bin/sh", "-c",
		`until test -s /tmp/demesne-services/see.log && test $(grep -c start /out/order) = 3; do sleep 0.05; done
python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8123))' || exit 9; cat /tmp/b; ls /tmp/demesne-services; cat /tmp/demesne-services/see.log; echo "$X"; exit 7`)
	r := b.demesne(run...)
	if want := "/in/services/b\na.log\nb.log\ninit.d.log\nlock\nport.log\nsee.log\nhello from c\n\n"; r.code != 7 || r.stdout != want {
		t.Errorf("exit %d, %q, want %q: %s", r.code, r.stdout, want, r.stderr)
	}
	got, err := os.ReadFile(filepath.Join(b.out, "order"))
	started, stopped, _ := strings.Cut(string(got), "stop")
	if err != nil || !strings.HasPrefix(started, "init set\nmore\nstart ") || stopped != " c\nstop b\nstop a\n" {
		t.Errorf("order: %q %v", got, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if !strings.Contains(started, "start "+name+" set\n") {
			t.Errorf("%s was not started with the variables of init.d: %q", name, started)
		}
	}
}

// TestServicesRestart restarts what ends, after a delay that doubles, and reports scripts and commands that fail.
func TestServicesRestart(t *testing.T) {
	b := newBox(t)
	dir, flags := b.services(map[string]string{
		"three!": "echo x >>/tmp/three; test $(wc -l </tmp/three) -ge 4 || exit 3; kill -9 $$\n", "absent!": "", "bare!": "exec sleep 1000\n",
	})
	os.WriteFile(b.dir+"/services/absent", []byte("#!/nonexistent\n"), 0o755)
	in := func(command string, more ...string) result {
		return b.demesne(append(append(append([]string{"run", "--init=" + dir}, flags...), more...), "--", "/bin/sh", "-c", command)...)
	}
	r := in(`until test "$(wc -l </tmp/three)" -ge 4 && grep -q 'signal 9' /tmp/demesne-services/three.log && test "$(wc -l </tmp/demesne-services/absent.log)" -ge 2; do sleep 0.05; done; head -n 4 /tmp/demesne-services/three.log; head -n 2 /tmp/demesne-services/absent.log; cat /tmp/demesne-services/bare.log`)
	want := "demesne: exited with 3: starts again after 100ms\ndemesne: exited with 3: starts again after 200ms\ndemesne: exited with 3: starts again after 400ms\n" +
		"demesne: ended by signal 9: starts again after 800ms\ndemesne: cannot start: starts again after 100ms\ndemesne: cannot start: starts again after 200ms\n"
	if r.code != 0 || r.stdout != want {
		t.Errorf("exit %d, %q, %s", r.code, r.stdout, r.stderr)
	}
	for command, code := range map[string]int{"kill -9 $$": 137, "exit 5": 5} {
		if r := in(command); r.code != code {
			t.Errorf("%s: %+v", command, r)
		}
	}
	if r := b.demesne(append(append([]string{"run", "--init=" + dir}, flags...), "--", "nothing-here")...); r.code != 127 || !strings.Contains(r.stderr, `"nothing-here": not found`) {
		t.Errorf("an unknown command: %+v", r)
	}
	if r := b.demesne("run", "--init=/nothing", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "open /nothing: no such file") {
		t.Errorf("no directory: %+v", r)
	}
	if r := b.demesne("run", "--init=x", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "not an absolute path") {
		t.Errorf("a relative directory: %+v", r)
	}
	if r := in("echo never", "--init="+dir+":9", "--timeout", "2s"); r.code != 124 || r.stdout != "" {
		t.Errorf("a port that never answers: %+v", r)
	}
	b.services(map[string]string{"init.d/bad!": "echo why; exit 4\n"})
	if r := in("echo never"); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, `"bad" of init.d exited with 4: see /tmp/demesne-services/init.d.log`) {
		t.Errorf("a script that fails: %+v", r)
	}
}

// TestServicesHostile has names of any bytes, a thousand services, too many, and a fork bomb, which stays in its sandbox.
func TestServicesHostile(t *testing.T) {
	b := newBox(t)
	long := strings.Repeat("%", 255)
	dir, flags := b.services(map[string]string{"a\nb; rm -rf /!": "exec sleep 1000\n", long + "!": "exec sleep 1000\n", "-n!": "exec sleep 1000\n", "\xff!": "exec sleep 1000\n"})
	in := func(command string, more ...string) result {
		return b.demesne(append(append(append([]string{"run", "--init=" + dir}, flags...), more...), "--", "/bin/sh", "-c", command)...)
	}
	r := in("ls /tmp/demesne-services")
	if all := strings.Fields(r.stdout); r.code != 0 || len(all) != 5 || !strings.Contains(r.stdout, "a%0ab%3b%20rm%20-rf%20.log\n") {
		t.Errorf("names: %+v", r)
	}
	many := b.mkdir("services/app.supervisor.d")
	program := b.file("services/.sleep", "#!/bin/sh\nexec sleep 3388\n", 0o755)
	for n := range 996 {
		if err := os.Symlink("../"+filepath.Base(program), fmt.Sprintf("%s/%04d", many, n)); err != nil {
			t.Fatal(err)
		}
	}
	if r := in("until test $(grep -ls '^sleep$' /proc/[0-9]*/comm | wc -l) -ge 1000; do sleep 0.1; done; ls /tmp/demesne-services | wc -l", "--pids", "3000"); r.code != 0 || r.stdout != "1001\n" {
		t.Errorf("1,000 services: %+v", r)
	}
	os.Symlink("../.sleep", many+"/more")
	if r := in("echo never"); r.code != 125 || !strings.Contains(r.stderr, "more than 1000 services") {
		t.Errorf("1,001 services: %+v", r)
	}
	os.RemoveAll(b.dir + "/services")
	b.services(map[string]string{"bomb!": "f() { f | f & }; f; exec sleep 3388\n"})
	if r := in("echo still here", "--pids", "100"); r.code != 0 || r.stdout != "still here\n" {
		t.Errorf("a fork bomb: %+v", r)
	}
	eventually(t, "the services to end with their sandbox", func() bool { return sleepers("3388") == 0 })
}

// TestServicesPersistent starts the services of a persistent sandbox once until it stops, and again afterwards.
func TestServicesPersistent(t *testing.T) {
	b := newBox(t)
	dir, flags := b.services(map[string]string{"a!": "echo x >>/var/tmp/starts; exec sleep 3399\n"})
	create := append([]string{"create", "--key", "services", "--init=" + dir}, flags...)
	count := func(id string) string {
		return b.demesne("exec", id, "--", "/bin/sh", "-c", "until grep -qs '^sleep$' /proc/[0-9]*/comm; do sleep 0.05; done; wc -l </var/tmp/starts").stdout
	}
	var id string
	for n, want := range []string{"1\n", "1\n", "2\n"} {
		if n == 2 {
			b.demesne("stop", id)
		}
		r := b.demesne(create...)
		if id = strings.TrimSpace(r.stdout); r.code != 0 || count(id) != want {
			t.Errorf("%d: %+v, started %q times, want %q", n, r, count(id), want)
		}
	}
	if r := b.demesne(append([]string{"run", "--key", "services", "--init=" + dir}, append(flags, "--", "wc", "-l", "/var/tmp/starts")...)...); r.stdout != "2 /var/tmp/starts\n" {
		t.Errorf("run: %+v", r)
	}
	b.demesne("rm", id)
	if r := b.demesne("create", "--init=/nothing"); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "open /nothing: no such file") || b.demesne("ls", "-q").stdout != "" {
		t.Errorf("create without the directory: %+v", r)
	}
	eventually(t, "the services to end", func() bool { return sleepers("3399") == 0 })
}

// TestServicesDevcontainer checks that the services of a dev container are there before its hooks.
func TestServicesDevcontainer(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/go", "postStartCommand": "cat /tmp/up > log"}`})
	w.file("app/services/init.d/up", "#!/bin/sh\necho up >/tmp/up\n", 0o755)
	for _, verb := range [][]string{{"run", "--devcontainer=" + w.dir, "--init=/workspaces/app/services", "--", "cat", "log"}, {"run", "--key", "k", "--devcontainer=" + w.dir, "--init=/workspaces/app/services", "--", "cat", "log"}} {
		if r := w.do(verb...); r.code != 0 || r.stdout != "up\n" {
			t.Errorf("%+v", r)
		}
	}
	w.ok("rm", strings.TrimSpace(w.ok("ls", "-q")))
	if r := w.do("run", "--init=/x", "--commands", "-"); r.code != 125 || !strings.Contains(r.stderr, "cannot be combined with -i, -t, --devcontainer or --init") {
		t.Errorf("--commands: %+v", r)
	}
}
