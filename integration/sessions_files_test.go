package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// must runs the CLI, which has to succeed, and returns its stdout.
func (b *box) must(args ...string) string {
	b.Helper()
	r := b.demesne(args...)
	if r.code != 0 {
		b.Fatalf("%q: %+v", args, r)
	}
	return r.stdout
}

// TestSessionSixProcesses uses one sandbox from six processes that share only its name.
func TestSessionSixProcesses(t *testing.T) {
	b := newBox(t)
	b.file("up.txt", "from outside\n", 0o644)
	id := strings.TrimSpace(b.must("create", "--name", "six"))
	b.must("exec", "six", "-c", "mkdir d; echo inside > d/own")
	b.must("cp", b.dir+"/up.txt", "six:/workspace/d/")
	if got := b.must("exec", id, "-c", "cat d/own d/up.txt"); got != "inside\nfrom outside\n" {
		t.Errorf("inside: %q", got)
	}
	b.must("cp", "six:/workspace/d", b.dir+"/down")
	b.must("rm", "six")
	for name, want := range map[string]string{"own": "inside\n", "up.txt": "from outside\n"} {
		if text, err := os.ReadFile(b.dir + "/down/" + name); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	b.refused(t, "six", "exec", "six", "--", "true")
}

// TestSessionRemove checks that rm also removes stopped sandboxes and snapshots, and that --force ignores
// sandboxes that do not exist.
func TestSessionRemove(t *testing.T) {
	b := newBox(t)
	b.must("create", "--name", "one")
	b.must("create", "--name", "two")
	b.must("stop", "two")
	b.must("snapshot", "--name", "snap", "two")
	b.must("rm", "one", "two", "snap")
	if left := b.must("ls", "-q"); left != "" {
		t.Errorf("left: %q", left)
	}
	// The runner may be making a prepared sandbox as its last one is removed.
	eventually(t, "the directories to be gone", func() bool { return len(names(b.dir+"/k")) == 0 })
	b.refused(t, "no such sandbox", "rm", "one")
	b.must("rm", "--force", "one")
}

// TestSessionMaxAge checks that --max-age ends a sandbox even while it is in use.
func TestSessionMaxAge(t *testing.T) {
	b := newBox(t)
	id := b.create("--max-age", "1s")
	eventually(t, "the time to be up", func() bool {
		b.demesne("exec", id, "--", "true")
		return len(descendants()) == 0
	})
	b.refused(t, id, "exec", id, "--", "true")
}

// TestSessionCopyAcross checks that files and directories can be copied from one sandbox to another.
func TestSessionCopyAcross(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one")
	b.create("--name", "two")
	b.must("exec", "one", "-c", "mkdir -p d/sub; echo f > d/f; echo deep > d/sub/g; chmod 750 d/f; ln -s f d/l; head -c 3000000 /dev/urandom > big")
	b.must("cp", "one:/workspace/d", "two:/tmp/")
	b.must("cp", "one:/workspace/d", "two:/tmp/named")
	b.must("cp", "one:/workspace/d/f", "two:/workspace/file")
	b.must("cp", "one:/workspace/big", "two:/workspace/")
	got := b.must("exec", "two", "-c", "cat /tmp/d/f /tmp/d/l /tmp/d/sub/g /tmp/named/f /workspace/file; stat -c %a /tmp/d/f; readlink /tmp/d/l")
	if got != "f\nf\ndeep\nf\nf\n750\nf\n" {
		t.Errorf("two has %q", got)
	}
	if one, two := b.must("exec", "one", "--", "md5sum", "big"), b.must("exec", "two", "--", "md5sum", "big"); one != two {
		t.Errorf("%q became %q", one, two)
	}
	b.refused(t, "none", "cp", "one:/workspace/none", "two:/tmp/")
	b.refused(t, "only files and directories are copied", "cp", "one:/dev/null", "two:/tmp/x")
	b.refused(t, "will not copy /", "cp", "one:/", "two:/tmp/x")
	b.refused(t, "no such sandbox", "cp", "one:/workspace/d", "nosuch:/tmp/x")
}

// TestEscapeSessionCopyAcross checks copies from a hostile sandbox (F2, F17, P16, P17). Its files lead nowhere
// else in the other sandbox, nor on the host.
func TestEscapeSessionCopyAcross(t *testing.T) {
	b := newBox(t)
	victim := b.file("victim/secret", canary+"\n", 0o600)
	b.create("--name", "evil", "--disk", "none")
	b.create("--name", "good")
	b.must("exec", "good", "-c", "echo good > /root/mine; mkdir d; ln -s /root d/out")
	// Links of the source remain links, and a link at the destination is replaced, not followed.
	b.must("exec", "evil", "-c", fmt.Sprintf(`mkdir e; ln -s %s e/host; ln -s /root/mine e/inside; echo evil > e/out; echo x > e/suid; chmod 6755 e/suid || chmod 755 e/suid; mkfifo e/pipe
		printf x > "$(printf 'e/odd\nname\377')"`, victim))
	b.must("cp", "evil:/workspace/e", "good:/workspace/d")
	got := b.must("exec", "good", "-c", "cat /root/mine d/out; readlink d/host d/inside; stat -c %a d/suid; cat d/host 2>/dev/null; ls d | wc -l; test -e d/pipe && echo pipe; true")
	if want := "good\nevil\n" + victim + "\n/root/mine\n755\n"; !strings.HasPrefix(got, want) || strings.Contains(got, canary) || strings.Contains(got, "pipe") {
		t.Errorf("good has %q", got)
	}
	// A link in the destination path resolves inside the destination sandbox.
	b.must("exec", "good", "-c", "ln -s /tmp way; rm -rf /tmp/*")
	b.must("cp", "evil:/workspace/e/suid", "good:/workspace/way/")
	if got := b.must("exec", "good", "--", "ls", "/tmp"); got != "suid\n" {
		t.Errorf("/tmp has %q", got)
	}
	// The destination's limit stops an endless copy, which breaks neither sandbox.
	b.must("exec", "evil", "-c", "truncate -s 50g huge")
	b.create("--name", "small", "--disk", "20m")
	if r := b.demesne("cp", "evil:/workspace/huge", "small:/tmp/"); r.code == 0 {
		t.Errorf("50 GiB went into 20 MiB: %+v", r)
	}
	if got := b.must("exec", "evil", "--", "echo", "alive"); got != "alive\n" {
		t.Errorf("evil: %q", got)
	}
}

// TestSessionForkRunning checks that a fork of a running sandbox has the files of one moment, and that stderr
// reports a copy made for it.
func TestSessionForkRunning(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one")
	b.must("exec", "one", "-c", "head -c 5000000 /dev/urandom > /root/big; md5sum /root/big > /root/sum")
	r := b.demesne("fork", "--name", "idle", "one")
	if r.code != 0 || r.stderr != "" {
		t.Errorf("nothing runs, and it says %+v", r)
	}
	b.must("exec", "one", "-c", "head -c 5000000 /dev/zero > /root/more; (while :; do date > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 & echo $! > /root/pid")
	r = b.demesne("fork", "--name", "running", "one")
	if r.code != 0 || !strings.Contains(r.stderr, "fork: copied 4.8 MiB") {
		t.Errorf("it runs: %+v", r)
	}
	for _, who := range []string{"one", "idle", "running"} {
		b.must("exec", who, "--", "md5sum", "-c", "/root/sum")
	}
	b.must("exec", "one", "-c", "rm /tmp/beat; while ! test -s /tmp/beat; do sleep 0.05; done; kill -0 $(cat /root/pid)")
	b.must("rm", "idle", "running")
}

// TestSessionReboot checks that a reboot loses processes but no files. It simulates one with another boot id, an
// empty run directory, and all processes killed.
func TestSessionReboot(t *testing.T) {
	b := newBox(t)
	id := b.create("--name", "box", "--memory", "256m")
	short := b.create("--ttl", "2s")
	b.must("exec", "box", "-c", "echo kept > /root/f; rm -f /etc/services; sleep 1000 >/dev/null 2>&1 &")
	for _, p := range descendants() {
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
	eventually(t, "everything to be gone", func() bool { return len(descendants()) == 0 })
	if err := os.RemoveAll(b.run + "/demesne"); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	spec := b.dir + "/k/" + id + "/spec.json"
	text, err := os.ReadFile(spec)
	if err != nil || !strings.Contains(string(text), strings.TrimSpace(string(boot))) {
		t.Fatalf("%s, %v", text, err)
	}
	text = []byte(strings.ReplaceAll(string(text), strings.TrimSpace(string(boot)), "00000000-0000-0000-0000-000000000000"))
	if err := os.WriteFile(spec, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if ls := b.must("ls"); !strings.Contains(ls, "stopped") {
		t.Errorf("ls: %s", ls)
	}
	r := b.demesne("exec", "box", "-c", "cat /root/f; ls /etc/services 2>/dev/null; pgrep sleep; true")
	if r.code != 0 || r.stdout != "kept\n" || !strings.Contains(r.stderr, "without its earlier processes") {
		t.Errorf("after a reboot: %+v", r)
	}
	// gc removes sandboxes that expired meanwhile, whichever runner created them.
	eventually(t, "it to expire", func() bool {
		b.must("gc")
		_, err := os.Stat(b.dir + "/k/" + short)
		return err != nil
	})
}
