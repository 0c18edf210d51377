package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// surroundings lists shell scripts that start demesne ($0 in the scripts) in unusual environments, in a directory
// of the test. Code 125 requires one line of error.
var surroundings = []struct {
	name, script string
	code         int
	says         string // all of stdout, or part of stderr with code 125
}{
	{"cron", `exec env -i HOME="$HOME" PATH=/usr/bin:/bin DEMESNE_SANDBOX_ROOT="$DEMESNE_SANDBOX_ROOT" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" setsid "$0" run -- echo ok </dev/null`, 0, "ok\n"},
	{"stdin closed", `exec "$0" run -i -- wc -c <&-`, 0, "0\n"},
	{"stderr closed", `exec "$0" run -c 'echo out; echo err >&2' 2>&-`, 0, "out\n"},
	{"all closed", `"$0" run -c 'exit 3' <&- >&- 2>&-; echo $?`, 0, "3\n"},
	{"stdout full", `exec "$0" run -- echo lost >/dev/full`, 125, "demesne: run: write stdout: no space left on device\n"},
	{"result full", `exec "$0" run --json -- echo lost >/dev/full`, 125, "demesne: run: write JSON: no space left on device\n"},
	{"directory gone", `mkdir gone; cd gone; rmdir ../gone; exec "$0" run -- pwd`, 0, "/workspace\n"},
	{"input beside a removed directory", `mkdir gone; cd gone; rmdir ../gone; exec "$0" run --in x -- pwd`, 125, `input "x": `},
	{"umask of nothing", `umask 777; "$0" run -c umask; umask 022; exec "$0" run -- echo ok`, 0, "0022\nok\n"},
	{"umask of all", `umask 0; "$0" run --out o -c 'umask; echo > /out/f'; stat -c %a o o/f`, 0, "0022\n700\n644\n"},
	{"few descriptors", `ulimit -n 128; exec "$0" run -- echo ok`, 0, "ok\n"},
	{"too few descriptors", `ulimit -n 24; exec "$0" run -- echo ok`, 125, "too many open files"},
	{"files of no size", `ulimit -f 0; exec "$0" run -- echo ok`, 125, "file too large"},
	{"limits of another caller", `(ulimit -f 1000; exec "$0" create --name a >/dev/null); "$0" run -c 'ulimit -f'; exec "$0" rm a`, 0, "4194304\n"},
	{"core files", `ulimit -c unlimited; "$0" run -c 'kill -SEGV $$'; ls`, 0, ""},
	{"no HOME", `unset HOME; "$0" run -- echo ok; rm -r "$XDG_RUNTIME_DIR"/demesne-state-*`, 0, "ok\n"},
	{"no HOME, and an output", `unset HOME; "$0" run --out o -- echo ok; rm -r "$XDG_RUNTIME_DIR"/demesne-state-*`, 0, "ok\n"},
	{"a HOME that cannot be", `HOME=/proc/nosuch; "$0" run -- echo ok; rm -r "$XDG_RUNTIME_DIR"/demesne-state-*`, 0, "ok\n"},
	{"a relative HOME", `unset XDG_RUNTIME_DIR; HOME=here; exec "$0" run --out o -- echo ok`, 0, "ok\n"},
	{"a HOME behind a link", `unset XDG_RUNTIME_DIR; mkdir home; ln -s home link; export HOME=$PWD/link; "$0" run --out o -- echo ok; "$0" create --out p --name a >/dev/null; exec "$0" rm a`, 0, "ok\n"},
	{"an XDG_RUNTIME_DIR behind a link", `mkdir run; ln -s run link; XDG_RUNTIME_DIR=$PWD/link exec "$0" run -- echo ok`, 0, "ok\n"},
	{"sandboxes behind a link", `mkdir k; ln -s k link; export DEMESNE_SANDBOX_ROOT=$PWD/link; "$0" create --name a >/dev/null; "$0" exec a -c 'echo kept > f'; "$0" stop a; "$0" exec a -- cat f 2>/dev/null; exec "$0" rm a`, 0, "kept\n"},
	{"root of a user namespace, beside root", `"$0" create --name a >/dev/null; unshare -r "$0" run -- echo ok; "$0" exec a -- echo still; exec "$0" rm a`, 0, "ok\nstill\n"},
	{"no network namespace left", `exec unshare -r sh -c 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$0" run -- true' "$0"`, 125, "hint: demesne check names"},
	{"no PID namespace left", `exec unshare -r sh -c 'echo 0 > /proc/sys/user/max_pid_namespaces; exec "$0" run -- true' "$0"`, 125, "hint: demesne check names"},
	{"cgroup2 where systemd mounts it", `exec unshare -rmC sh -c 'mount -t cgroup2 none /sys/fs/cgroup 2>&-; exec "$0" run -- echo ok' "$0"`, 0, "ok\n"},
	{"no XDG_RUNTIME_DIR", `unset XDG_RUNTIME_DIR; exec "$0" run -- echo ok`, 0, "ok\n"},
	{"one HOME by two names", `mkdir real; ln -s "$PWD/real" link; unset XDG_RUNTIME_DIR DEMESNE_SANDBOX_ROOT; export HOME=$PWD/link/home; mkdir "$HOME"
"$0" run -- echo ok; HOME=$PWD/real/home "$0" create --name a >/dev/null; "$0" exec a -- echo found; exec "$0" rm a`, 0, "ok\nfound\n"},
	{"a relative XDG_RUNTIME_DIR", `XDG_RUNTIME_DIR=here; "$0" run -- echo ok; ls`, 0, "ok\n"},
	{"an XDG_RUNTIME_DIR that cannot be", `XDG_RUNTIME_DIR=/proc/nosuch; exec "$0" run -- echo ok`, 0, "ok\n"},
	{"a newline in XDG_RUNTIME_DIR", `export XDG_RUNTIME_DIR=$PWD/$(printf 'a\nb'); "$0" run -- echo ok; ls -A`, 0, "ok\n"},
	{"a colon in XDG_RUNTIME_DIR", `touch a; mkdir a:b; export XDG_RUNTIME_DIR=$PWD/a:b; "$0" run -- echo ok
for i in $(seq 600); do ls a:b/demesne/*.* >/dev/null 2>&1 || break; sleep 0.1; done; ls a:b/demesne a`, 0, "ok\na\n\na:b/demesne:\ngrants\nmnt\nscratch\nstate\n"},
	{"names with blanks", `mkdir 'a b' "t	ab"; echo x > 'a b/c d'; exec "$0" run --in 'a b/c d' --out "t	ab" --workspace 'a b' -c 'cat "/in/c d" "c d"; echo > /out/x'`, 0, "x\nx\n"},
	{"a name with a newline", `touch "$(printf 'a\nb')"; exec "$0" run --in "$(printf 'a\nb')" -- true`, 125, "hint: use --in PATH:NAME"},
	{"a name that is not text", `touch "$(printf 'a\377')"; exec "$0" run --in "$(printf 'a\377')" -- true`, 125, "is not UTF-8"},
	{"an output that is not text", `mkdir "$(printf 'a\377')"; exec "$0" run --out "$(printf 'a\377')" -- true`, 125, "is not UTF-8"},
	{"no text below an input", `mkdir d; echo x > "d/$(printf 'a\377')"; exec "$0" run --in d -c 'cat /in/d/a*'`, 0, "x\n"},
	{"a hundred inputs", `mkdir d; for i in $(seq 100); do echo $i > d/$i; set -- "$@" --in d/$i; done; exec "$0" run "$@" -c 'cat /in/* | wc -l'`, 0, "100\n"},
	{"a thousand inputs", `mkdir d; for i in $(seq 1000); do echo $i > d/$i; set -- "$@" --in d/$i; done; exec "$0" run "$@" -- true`, 125, "hint: put the files into a directory"},
	{"many arguments", `exec "$0" run -- sh -c 'echo $#' $(seq 100000)`, 0, "99999\n"},
	{"a long value", `X=$(head -c 120000 /dev/zero | tr '\0' x) exec "$0" run --env X -c 'echo ${#X}'`, 0, "120000\n"},
	{"a pipe that ends early", `"$0" run -- seq 1000000 | head -n 1`, 0, "1\n"},
}

// TestSurroundings checks that a command works from any environment, or that one line says why not.
func TestSurroundings(t *testing.T) {
	for _, c := range surroundings {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			cmd := b.command("/bin/bash", "-c", c.script, bin+"/demesne")
			cmd.Dir = b.mkdir("here")
			r := b.finish(cmd)
			said := r.stdout
			if c.code == 125 {
				said = r.stderr
			}
			if r.code != c.code || c.code == 0 && said != c.says || !strings.Contains(said, c.says) || strings.Count(r.stderr, "\n") > 2 {
				t.Errorf("%+v, want exit %d and %q", r, c.code, c.says)
			}
		})
	}
}

// TestSurroundingsWithout checks that demesne works without missing features of a file system or kernel, or
// reports them in one line, and never hangs.
func TestSurroundingsWithout(t *testing.T) {
	b := newBox(t)
	without := func(what string, args ...string) result {
		return b.finish(b.command(tools+"/nons", append([]string{what, bin + "/demesne"}, args...)...))
	}
	if r := without("--flock", "run", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "no locks available\nhint: set XDG_RUNTIME_DIR ") {
		t.Errorf("without locks: %+v", r)
	}
	if r := without("--splice", "run", "--", "echo", "ok"); r.code != 0 || r.stdout != "ok\n" {
		t.Errorf("without splice: %+v", r)
	}
}

// TestSurroundingsRunDirectory checks that a run directory of another user is not used, and causes no error.
func TestSurroundingsRunDirectory(t *testing.T) {
	b := newBox(t)
	if os.Getuid() == 0 {
		b.as(54321)
	}
	b.extra = append(b.extra, "XDG_RUNTIME_DIR=/root")
	if r := b.demesne("run", "--", "echo", "ok"); r.stdout != "ok\n" {
		t.Errorf("%+v", r)
	}
}

// TestSurroundingsSudo checks that root, by sudo -E, creates no files in the home and run directory of the
// calling user.
func TestSurroundingsSudo(t *testing.T) {
	if os.Getuid() != 0 {
		return // an ordinary user could not create files there either
	}
	b := newBox(t)
	theirs := b.mkdir("theirs")
	if err := errors.Join(os.Mkdir(theirs+"/run", 0o700), os.Chown(theirs, 54321, 54321), os.Chown(theirs+"/run", 54321, 54321)); err != nil {
		t.Fatal(err)
	}
	b.extra = append(b.extra, "HOME="+theirs, "XDG_RUNTIME_DIR="+theirs+"/run")
	if out := b.must("run", "--out", b.dir+"/o", "--", "echo", "ok"); out != "ok\n" {
		t.Errorf("%q", out)
	}
	b.must("jobs")
	for dir, want := range map[string]int{theirs: 1, theirs + "/run": 0} {
		if list, err := os.ReadDir(dir); err != nil || len(list) != want {
			t.Errorf("%s has %v, %v", dir, list, err)
		}
	}
}

// TestSurroundingsLittleMemory checks that PID 1, which has the limits of its commands, works with the smallest
// accepted memory limit and any number of commands.
func TestSurroundingsLittleMemory(t *testing.T) {
	b := newBox(t)
	demesne := b.single(t)
	for _, size := range []string{"16m", "48m", "64m"} {
		script := "for i in 1 2 3 4 5 6 7 8; do echo $i & done; wait"
		for round := range 8 {
			if r := b.finish(demesne("run", "--memory", size, "--", "sh", "-c", script)); r.code != 0 || strings.Count(r.stdout, "\n") != 8 {
				t.Errorf("%s, round %d: %+v", size, round, r)
			}
		}
	}
	r := b.finish(demesne("create", "--memory", "64m"))
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 {
		t.Fatalf("create: %+v", r)
	}
	defer func() { b.finish(demesne("rm", id)) }()
	ends := make(chan result)
	for i := range 16 {
		go func() { ends <- b.finish(demesne("exec", id, "-c", fmt.Sprint("sleep 0.2; echo ", i))) }()
	}
	for range 16 {
		if r := <-ends; r.code != 0 {
			t.Errorf("exec: %+v", r)
		}
	}
}

// TestSurroundingsReplaced checks sandboxes of an older or parallel installation. The current demesne lists them, runs commands in them,
// treats their names as taken, and can stop, keep and remove them.
func TestSurroundingsReplaced(t *testing.T) {
	b := newBox(t)
	for _, p := range names(bin) {
		b.file("new/"+p, readFile(t, filepath.Join(bin, p)), 0o755)
	}
	b.must("create", "--name", "one")
	b.must("exec", "one", "-c", "echo kept > f; sleep 1000 >/dev/null 2>&1 &")
	b.must("create", "--name", "two")
	replaced := func(args ...string) result { return b.finish(b.command(b.dir+"/new/demesne", args...)) }
	if r := replaced("ls"); !strings.Contains(r.stdout, "one") || !strings.Contains(r.stdout, "two") {
		t.Errorf("ls: %+v", r)
	}
	if r := replaced("exec", "one", "--", "cat", "f"); r.code != 0 || r.stdout != "kept\n" {
		t.Errorf("exec: %+v", r)
	}
	if r := replaced("create", "--name", "one"); r.code != 125 || !strings.Contains(r.stderr, "is in use") {
		t.Errorf("create: %+v", r)
	}
	if r := replaced("stop", "one"); r.code != 0 {
		t.Errorf("stop: %+v", r)
	}
	if r := replaced("rm", "two"); r.code != 0 {
		t.Errorf("rm: %+v", r)
	}
	eventually(t, "the runner to end with its last sandbox", func() bool { return len(runners(true)) == 0 })
	if r := replaced("exec", "one", "--", "cat", "f"); r.code != 0 || r.stdout != "kept\n" {
		t.Errorf("exec, later: %+v", r)
	}
	if r := replaced("rm", "one"); r.code != 0 || len(names(b.dir+"/k")) > 0 {
		t.Errorf("rm, later: %+v", r)
	}
}
