package runner

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner/wire"
)

// TestFork: a fork has the files, and from then on each its own; their size does not matter.
func TestFork(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	s := c.create(client, Spec{Name: "one"})
	c.sh(s, "head -c 300000000 /dev/zero > /var/tmp/big; echo base > /workspace/f; rm -f /etc/services")
	if _, err := client.Fork(ctx, "one", "", t.TempDir()); code(err) != wire.CodeBusy {
		t.Errorf("fork of what runs: %v", err)
	}
	if err := client.Halt(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	id, err := client.Fork(ctx, "one", "two", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("forked in %v", time.Since(began))
	if _, err := client.Fork(ctx, "one", "two", t.TempDir()); code(err) != wire.CodeExists {
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
		if out, r := c.sh(open(who), look); !strings.HasPrefix(out, "base\n300000000") || strings.Contains(out, "services") || !r.Restarted {
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
	if _, err := client.Open(ctx, snap); code(err) != wire.CodeInvalid {
		t.Errorf("open a snapshot: %v", err)
	}
	if i, err := client.Inspect(ctx, "snap"); err != nil || i.State != Snapshot || !i.Expires.IsZero() {
		t.Errorf("snapshot: %+v, %v", i, err)
	}
	// What it is of may go.
	if err := client.Stop(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := client.Sweep(ctx); err != nil {
		t.Error(err)
	}
	if _, err := client.Fork(ctx, snap, "three", t.TempDir()); err != nil {
		t.Error(err)
	}
	if out, _ := c.sh(open("three"), look); !strings.HasPrefix(out, "base\n300000000") {
		t.Errorf("three has %q", out)
	}
}

// TestForkOfForks: the files of each generation are below the next, through a kill; nothing is left of them at the end.
func TestForkOfForks(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	s := c.create(client, Spec{})
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
		if id, err = client.Fork(ctx, id, "", t.TempDir()); err != nil {
			t.Fatal(err)
		}
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
		if err := client.Stop(ctx, i.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Sweep(ctx); err != nil {
		t.Error(err)
	}
	list, _ := os.ReadDir(c.dir + "/s")
	if len(list) > 0 {
		t.Errorf("left: %v", list)
	}
	client.Close()
}

// TestKey: one sandbox of a key, for whoever comes, until it is to be another.
func TestKey(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	keyed := func(change func(*Spec)) *Sandbox {
		t.Helper()
		spec := Spec{Key: "agent/1", Lifetime: Persistent, Out: t.TempDir()}
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
			s, err := client.Create(ctx, Spec{Key: "agent/1", Lifetime: Persistent, Out: out})
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
	if s := keyed(func(s *Spec) { s.TTL, s.Name = Duration(time.Hour), "n" }); s.ID != first || s.Restarted {
		t.Errorf("with another name: %+v", s)
	}
	c.kill(client)
	client = c.connect()
	defer client.Close()
	s := keyed(nil)
	if out, _ := c.sh(s, "cat /root/f"); s.ID != first || !s.Restarted || out != "kept" {
		t.Errorf("after a kill: %+v has %q", s, out)
	}
	other := keyed(func(s *Spec) { s.Limits.PIDs = 64 })
	if out, _ := c.sh(other, "cat /root/f 2>&1"); other.ID == first || !strings.Contains(out, "No such file") {
		t.Errorf("with another limit: %+v has %q", other, out)
	}
	if err := client.Halt(ctx, other.ID); err != nil {
		t.Fatal(err)
	}
	if again := keyed(nil); again.ID == other.ID || len(c.boxes()) != 1 {
		t.Errorf("without it: %+v; there are %q", again, c.boxes())
	}
	if _, err := client.Create(ctx, Spec{Key: "k", Out: t.TempDir()}); code(err) != wire.CodeInvalid {
		t.Errorf("of a one-shot: %v", err)
	}
}
