package client

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// withOne returns a corner with a sandbox "one" to be forked, and a client that is closed at the end.
func withOne(t *testing.T) (corner, *Client, *Sandbox) {
	t.Helper()
	c := newCorner(t)
	client := c.connect()
	t.Cleanup(func() { client.Close() })
	return c, client, c.create(client, runner.Spec{Name: "one"})
}

// forkOne makes a fork of "one" and starts it.
func (c corner) forkOne(client *Client) (runner.Forked, *Sandbox) {
	c.Helper()
	f, err := client.Fork(c.Context(), "one", "", c.TempDir())
	if err != nil {
		c.Fatal(err)
	}
	s, err := client.Open(c.Context(), f.ID)
	if err != nil {
		c.Fatal(err)
	}
	return f, s
}

// TestFork: a fork has the source's files, later writes stay separate, and the size of the files does not matter.
func TestFork(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	c.sh(s, "head -c 300000000 /dev/zero > /var/tmp/big; echo base > /workspace/f; rm -f /etc/services")
	if err := client.Stop(ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	fork, err := client.Fork(ctx, "one", "two", t.TempDir())
	if err != nil || fork.Copied > 0 {
		t.Fatalf("%+v, %v", fork, err)
	}
	id := fork.ID
	t.Logf("forked in %v", time.Since(began))
	if _, err := client.Fork(ctx, "one", "two", t.TempDir()); code(err) != ipc.CodeExists {
		t.Errorf("the name twice: %v", err)
	}
	snap, err := client.Snapshot(ctx, "one", "snap")
	if err != nil {
		t.Fatal(err)
	}
	open := func(who string) *Sandbox {
		t.Helper()
		s, err := client.Open(ctx, who)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const look = "cat /workspace/f; stat -c %s /var/tmp/big; ls /etc/services 2>/dev/null; true"
	for _, who := range []string{"one", id} {
		if out, r := c.sh(open(who), look); !strings.HasPrefix(out, "base\n300000000") || strings.Contains(out, "services") || r.Restarted != (who == "one") {
			t.Errorf("%s has %q", who, out)
		}
	}
	c.sh(open("one"), "echo one > /workspace/f; rm /var/tmp/big")
	c.sh(open("two"), "echo two > /workspace/f")
	for _, who := range []string{"one", "two"} {
		if out, _ := c.sh(open(who), "cat /workspace/f"); out != who {
			t.Errorf("%s has %q", who, out)
		}
	}
	if out, _ := c.sh(open("two"), "stat -c %s /var/tmp/big"); out != "300000000" {
		t.Errorf("two lost what one removed: %s", out)
	}
	if _, err := client.Open(ctx, snap.ID); code(err) != ipc.CodeInvalid {
		t.Errorf("open a snapshot: %v", err)
	}
	if i, err := client.Inspect(ctx, "snap"); err != nil || i.State != runner.Snapshot || !i.Expires.IsZero() {
		t.Errorf("snapshot: %+v, %v", i, err)
	}
	// The source may be removed.
	if err := client.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := client.GC(ctx); err != nil {
		t.Error(err)
	}
	if _, err := client.Fork(ctx, snap.ID, "three", t.TempDir()); err != nil {
		t.Error(err)
	}
	if out, _ := c.sh(open("three"), look); !strings.HasPrefix(out, "base\n300000000") {
		t.Errorf("three has %q", out)
	}
}

// TestForkIdle: a sandbox without processes is forked without a copy, and its halt is not reported.
func TestForkIdle(t *testing.T) {
	c, client, s := withOne(t)
	for round := range 3 {
		c.sh(s, fmt.Sprintf("head -c 100000000 /dev/zero >> /var/tmp/big; echo %d > /root/n", round))
		fork, other := c.forkOne(client)
		if fork.Copied > 0 || fork.Still > 0 {
			t.Errorf("%+v", fork)
		}
		if out, r := c.sh(s, "cat /root/n; echo changed > /root/n"); out != fmt.Sprint(round) || r.Restarted {
			t.Errorf("the first has %q, %+v", out, r)
		}
		if out, _ := c.sh(other, "cat /root/n; stat -c %s /var/tmp/big"); out != fmt.Sprintf("%d\n%d00000000", round, round+1) {
			t.Errorf("the fork has %q", out)
		}
	}
}

// TestForkRunning: a fork of a sandbox with writing processes has the files of one instant, and the processes
// continue.
func TestForkRunning(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	// One process keeps two files equal. No fork may have a newer second file than first file.
	c.sh(s, `rm -f /etc/services; mkdir /root/d; cd /root/d; echo 0 > a; echo 0 > b
		(n=0; while :; do n=$((n+1)); echo $n > t; mv t a; echo $n > t; mv t b; sleep 0.01; done) >/dev/null 2>&1 &`)
	const look = "cat /root/d/a; cat /root/d/b; ls /etc/services 2>/dev/null; true"
	for range 5 {
		fork, other := c.forkOne(client)
		if fork.Still == 0 {
			t.Errorf("%+v", fork)
		}
		out, _ := c.sh(other, look)
		again, _ := c.sh(other, look)
		var a, b int
		if n, _ := fmt.Sscan(out, &a, &b); n != 2 || a < b || a > b+1 || out != again || strings.Contains(out, "services") {
			t.Errorf("the fork has %q, then %q", out, again)
		}
		c.sh(s, fmt.Sprintf("while [ $(cat /root/d/b) -le %d ]; do sleep 0.01; done", a)) // it continues
		if err := client.Remove(ctx, fork.ID); err != nil {
			t.Error(err)
		}
	}
	if out, r := c.sh(s, "pgrep -c sh; true"); r.Restarted || out == "0" {
		t.Errorf("the first: %q, %+v", out, r)
	}
}

// TestForkLarge: processes continue during a large copy, and the fork still has the files of one instant. New
// commands and other forks run before or after the copy.
func TestForkLarge(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	c.sh(s, `mkdir -p /root/d/e; cd /root/d; echo 0 > a; echo 0 > b; head -c 8000000 /dev/urandom | split -b 8000 -a 3 -d - e/; md5sum e/* > sums
		sleep 1000 > /dev/null 2>&1 &`)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				c.sh(s, fmt.Sprintf("cd /root/d; echo %d > t; mv t a; mv e/%03d e/x; mv e/x e/%03[2]d; echo %[1]d > t; mv t b", n, n%1000))
			}
		}
	}()
	forks := make(chan runner.Forked, 4)
	for range cap(forks) / 2 {
		go func() {
			for range 2 {
				fork, err := client.Fork(ctx, "one", "", t.TempDir())
				if err != nil {
					t.Error(err)
				}
				forks <- fork
			}
		}()
	}
	for range cap(forks) {
		fork := <-forks
		t.Logf("%d bytes, still for %v", fork.Copied, time.Duration(fork.Still))
		other, err := client.Open(ctx, fork.ID)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := c.sh(other, "cd /root/d; cat a b; ls e | wc -l; test -e e/x && mv e/x e/$(printf %03d $(($(cat a)%1000))); md5sum --quiet -c sums; true")
		var a, b, n int
		if k, _ := fmt.Sscan(out, &a, &b, &n); k != 3 || a < b || a > b+1 || n != 1000 || strings.Count(out, "\n") != 2 {
			t.Errorf("the fork has %.200q", out)
		}
		if err := client.Remove(ctx, fork.ID); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
}

// TestForkMapped: a fork includes data that a process stored through a memory mapping.
func TestForkMapped(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	c.sh(s, `cd /root; cat > map.py <<'E'
import mmap, os, time
open("m", "wb").write(b"0" * 16)
f = open("m", "r+b")
m = mmap.mmap(f.fileno(), 16)
n = 0
while True:
    n += 1
    m[0:8] = b"%08d" % n
    open("t", "w").write(str(n))
    os.rename("t", "n")
    time.sleep(0.001)
E
		head -c 20000000 /dev/urandom > big
		python3 map.py > /dev/null 2>&1 & while ! test -s n; do sleep 0.01; done`)
	for range 5 {
		fork, other := c.forkOne(client)
		if fork.Still == 0 {
			t.Errorf("%+v", fork)
		}
		out, _ := c.sh(other, "cd /root; expr $(head -c 8 m) + 0; cat n; echo; wc -c < big")
		var m, n, big int
		if k, _ := fmt.Sscan(out, &m, &n, &big); k != 3 || m < n || m > n+1 || big != 20000000 {
			t.Errorf("the fork has %q", out)
		}
		if err := client.Remove(ctx, fork.ID); err != nil {
			t.Error(err)
		}
	}
}

// TestForkKilled: a runner killed during a fork leaves a complete fork or none, and the source unchanged.
func TestForkKilled(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	s := c.create(client, runner.Spec{Name: "one"})
	c.sh(s, "head -c 50000000 /dev/urandom > /root/big; md5sum < /root/big > /root/sum")
	for round := range 10 {
		c.sh(s, "sleep 1000 > /dev/null 2>&1 &")
		go client.Fork(ctx, "one", "", t.TempDir())
		time.Sleep(time.Duration(round) * 8 * time.Millisecond) // another moment in each round
		c.kill(client)
		client = c.connect()
		if _, err := client.GC(ctx); err != nil {
			t.Error(err)
		}
		all, err := client.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			b, err := client.Open(ctx, i.ID)
			if err != nil {
				t.Fatal(err)
			}
			if out, _ := c.sh(b, "md5sum < /root/big | cmp - /root/sum && echo same"); out != "same" {
				t.Errorf("round %d: %s has %q", round, i.ID, out)
			}
			if i.Name == "one" {
				s = b
			} else if err := client.Remove(ctx, i.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if err := client.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := client.GC(ctx); err != nil {
		t.Error(err)
	}
	if list, _ := os.ReadDir(c.dir + "/s"); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
	client.Close()
}

// TestForkOfForks: each generation has the files of the one before, across kills of the runner. At the end all files
// are removed.
func TestForkOfForks(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	s := c.create(client, runner.Spec{})
	id, want := s.ID, ""
	for _, n := range []string{"1", "2", "3", "4"} {
		s, err := client.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		c.sh(s, "echo "+n+" >> /root/log")
		c.kill(client)
		client = c.connect()
		want += n
		fork, err := client.Fork(ctx, id, "", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		id = fork.ID
		if s, err = client.Open(ctx, id); err != nil {
			t.Fatal(err)
		}
		if out, _ := c.sh(s, "tr -d '\\n' < /root/log"); out != want {
			t.Errorf("generation %s has %q, want %q", n, out, want)
		}
	}
	all, err := client.List(ctx)
	if err != nil || len(all) != 5 {
		t.Errorf("%d sandboxes, %v", len(all), err)
	}
	for _, i := range all {
		if err := client.Remove(ctx, i.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.GC(ctx); err != nil {
		t.Error(err)
	}
	list, _ := os.ReadDir(c.dir + "/s")
	if len(list) > 0 {
		t.Errorf("left: %v", list)
	}
	client.Close()
}

// TestKey: all callers with one key get the same sandbox, until Replace.
func TestKey(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	keyed := func(change func(*runner.Spec)) *Sandbox {
		t.Helper()
		spec := runner.Spec{Key: "agent/1", Lifetime: runner.Persistent, Out: t.TempDir()}
		if change != nil {
			change(&spec)
		}
		s, err := client.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ids, out := make(chan string, 6), t.TempDir()
	for range cap(ids) {
		go func() {
			s, err := client.Create(ctx, runner.Spec{Key: "agent/1", Lifetime: runner.Persistent, Out: out})
			if err != nil {
				s = &Sandbox{ID: err.Error()}
			}
			ids <- s.ID
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("%s and %s have the same key", first, id)
		}
	}
	c.sh(keyed(nil), "echo kept > /root/f")
	differs := func(when, what string, change func(*runner.Spec)) {
		t.Helper()
		spec := runner.Spec{Key: "agent/1", Lifetime: runner.Persistent, Out: t.TempDir()}
		change(&spec)
		if _, err := client.Create(ctx, spec); code(err) != ipc.CodeDiffers || !strings.Contains(err.Error(), what+": created with") {
			t.Errorf("%s, with another %s: %v", when, what, err)
		}
	}
	differs("live", "name", func(s *runner.Spec) { s.Name = "n" })
	differs("live", "pids", func(s *runner.Spec) { s.Limits.PIDs = 64 })
	c.kill(client)
	client = c.connect()
	defer client.Close()
	s := keyed(nil)
	if out, _ := c.sh(s, "cat /root/f"); s.ID != first || !s.Restarted || out != "kept" {
		t.Errorf("after a kill: %+v has %q", s, out)
	}
	if err := client.Stop(ctx, first, 0); err != nil {
		t.Fatal(err)
	}
	differs("stopped", "pids", func(s *runner.Spec) { s.Limits.PIDs = 64 })
	if out, _ := c.sh(keyed(nil), "cat /root/f"); out != "kept" {
		t.Errorf("after all that it has %q", out)
	}
	// Replace removes the sandbox, live or not.
	port := runner.Port{Listen: "unix:" + c.dir + "/sock", To: 80}
	replace := func(s *runner.Spec) { s.Limits.PIDs, s.Replace, s.Publish = 64, true, []runner.Port{port} }
	other := keyed(replace)
	if out, r := c.sh(other, "cat /root/f 2>&1"); other.ID == first || !strings.Contains(out, "No such file") || !other.Replaced || !r.Replaced {
		t.Errorf("with another limit: %+v has %q", other, out)
	}
	if s := keyed(func(s *runner.Spec) { s.Limits.PIDs, s.Publish = 64, []runner.Port{port} }); s.ID != other.ID || s.Replaced || !s.Existing {
		t.Errorf("with the port that it listens on: %+v", s)
	}
	// It keeps its name and its time to live, unless the caller names others.
	spec := func(id string) runner.Spec {
		info, err := client.Inspect(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return info.Spec
	}
	named := keyed(func(s *runner.Spec) { s.Replace, s.Name, s.TTL = true, "web", runner.Duration(time.Hour) })
	for range 2 { // also after it inherited them
		kept := keyed(replace)
		if s := spec(kept.ID); s.Name != "web" || s.TTL != runner.Duration(time.Hour) || kept.ID == named.ID {
			t.Errorf("replaced without a name: %q, %v", s.Name, time.Duration(s.TTL))
		}
		if s := keyed(func(s *runner.Spec) { s.Name, s.TTL = "web", runner.Duration(time.Hour) }); s.ID != kept.ID {
			t.Errorf("by the kept name: %+v", s)
		}
		named = kept
	}
	other = keyed(func(s *runner.Spec) { replace(s); s.Name, s.TTL = "api", runner.Duration(time.Minute) })
	if s := spec(other.ID); s.Name != "api" || s.TTL != runner.Duration(time.Minute) {
		t.Errorf("replaced with another name: %q, %v", s.Name, time.Duration(s.TTL))
	}
	// A failed creation removes nothing.
	taken, err := client.Create(ctx, runner.Spec{Name: "taken", Lifetime: runner.Persistent, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*runner.Spec){
		"name":  func(s *runner.Spec) { s.Name = "taken" },
		"input": func(s *runner.Spec) { s.Inputs = []runner.Input{{Path: c.dir + "/none", Name: "n"}} },
		"image": func(s *runner.Spec) {
			s.Image, s.Rootfs = "x", &runner.Rootfs{Digest: "sha256:x", Store: c.dir, Layers: []string{"sha256:" + strings.Repeat("0", 64)}}
		},
	} {
		spec := runner.Spec{Key: "agent/1", Lifetime: runner.Persistent, Out: t.TempDir(), Replace: true}
		change(&spec)
		if _, err := client.Create(ctx, spec); err == nil {
			t.Errorf("made without its %s", what)
		}
		if s := keyed(nil); s.ID != other.ID {
			t.Errorf("it was removed for want of another one's %s", what)
		}
	}
	if err := client.Remove(ctx, taken.ID); err != nil {
		t.Fatal(err)
	}
	again := keyed(replace)
	if again.ID == other.ID || !again.Replaced {
		t.Errorf("a second time: %+v", again)
	}
	if err := client.Stop(ctx, again.ID, 0); err != nil {
		t.Fatal(err)
	}
	if last := keyed(replace); last.ID == again.ID || !last.Replaced || len(c.boxes()) != 1 {
		t.Errorf("of a stopped one: %+v; there are %q", last, c.boxes())
	}
	if _, err := client.Create(ctx, runner.Spec{Key: "k", Out: t.TempDir()}); code(err) != ipc.CodeInvalid {
		t.Errorf("of a one-shot: %v", err)
	}
}
