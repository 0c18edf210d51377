package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// longToCopy is a script that leaves a process and enough files for a test to interrupt their copying.
const longToCopy = "mkdir /root/e; for i in $(seq 100); do head -c 2000000 /dev/zero > /root/e/$i; done; sleep 1000 > /dev/null 2>&1 &"

// copying waits until files of a sandbox are being copied.
func (c corner) copying() {
	c.Helper()
	c.eventually("files to be copied", func() bool {
		found, _ := filepath.Glob(c.dir + "/s/.old-*/up/root/e/*")
		return len(found) > 0
	})
}

// TestForkUntold: a fork is removed if its caller disconnects before the fork is finished.
func TestForkUntold(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	c.sh(s, longToCopy)
	other := c.connect()
	go other.Snapshot(ctx, "one", "")
	c.copying()
	other.Close()
	c.eventually("the fork to be finished, and then removed", func() bool {
		return len(c.boxes()) == 1
	})
	// A snapshot is also removed if its caller received the id but disconnects before it makes a call about it.
	other = c.connect()
	for _, known := range []bool{false, true} {
		f, err := other.Snapshot(ctx, "one", "")
		if err == nil && known {
			_, err = other.Inspect(ctx, f.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer client.Remove(ctx, f.ID)
	}
	other.Close()
	c.eventually("the other to be removed", func() bool {
		all, err := client.List(ctx)
		return err == nil && len(all) == 2
	})
}

// TestForkCancelled: a fork whose call was cancelled is removed once it is made, while its caller stays connected.
func TestForkCancelled(t *testing.T) {
	c, client, s := withOne(t)
	c.sh(s, longToCopy)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := client.Fork(ctx, "one", "two", c.dir+"/o2")
		failed <- err
	}()
	c.copying()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.eventually("the fork to be finished, and then removed", func() bool {
		all, err := client.List(t.Context())
		return len(c.boxes()) == 1 && err == nil && len(all) == 1
	})
}

// TestForkEphemeral checks that an ephemeral fork has its own mount and ends with its caller, even while it runs.
func TestForkEphemeral(t *testing.T) {
	c := newCorner(t)
	ctx := t.Context()
	client := c.connect()
	defer client.Close()
	one, two := c.tree("a"), c.tree("b")
	mount := runner.Mount{Source: one, Target: "/mine", ReadOnly: true}
	s := c.create(client, runner.Spec{Name: "one", Mounts: []runner.Mount{mount}})
	if got, _ := c.sh(s, "echo kept > /kept; ls /mine"); got != "a" {
		t.Error(got)
	}
	if err := client.Stop(ctx, "one", 0); err != nil {
		t.Fatal(err)
	}
	other := c.connect()
	fork := func(m runner.Mount) (runner.Forked, error) {
		return other.EphemeralFork(ctx, "one", c.tree(), []runner.Mount{m}, nil)
	}
	for _, m := range []runner.Mount{{Source: two, Target: "/elsewhere", ReadOnly: true}, {Source: two, Target: "/mine"}} {
		if _, err := fork(m); code(err) != ipc.CodeInvalid {
			t.Errorf("%v: %v", m, err)
		}
	}
	mount.Source = two
	f, err := fork(mount)
	if err != nil {
		t.Fatal(err)
	}
	box, err := other.Open(ctx, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := c.sh(box, "sleep 1000 >/dev/null 2>&1 & cat /kept; ls /mine"); got != "kept\nb" {
		t.Error(got)
	}
	if _, err := fork(mount); err != nil { // never opened
		t.Fatal(err)
	}
	other.Close()
	c.eventually("the forks to be removed", func() bool {
		all, err := client.List(ctx)
		return err == nil && len(all) == 1
	})
	if s, err = client.Open(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.sh(s, "cat /kept; ls /mine"); got != "kept\na" {
		t.Errorf("the source: %s", got)
	}
}

// TestForkRemoved: removing the source during a fork leaves no fork, not even a partial one.
func TestForkRemoved(t *testing.T) {
	c, client, s := withOne(t)
	ctx := t.Context()
	c.sh(s, longToCopy)
	forked := make(chan error)
	go func() {
		_, err := client.Fork(ctx, "one", "", t.TempDir())
		forked <- err
	}()
	c.copying()
	if err := client.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	if err := <-forked; code(err) != ipc.CodeGone {
		t.Error(err)
	}
	if list, _ := os.ReadDir(c.dir + "/s"); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
}

// TestStopTwice: concurrent calls that remove or use a stopped sandbox succeed or report that it does not exist.
func TestStopTwice(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	for range 5 {
		c.create(client, runner.Spec{Name: "one"})
		if err := client.Stop(ctx, "one", 0); err != nil {
			t.Fatal(err)
		}
		ends := make(chan error)
		for range 3 {
			go func() { ends <- client.Remove(ctx, "one") }()
			go func() {
				_, err := client.Diff(ctx, "one")
				ends <- err
			}()
		}
		for range 6 {
			if err := <-ends; err != nil && code(err) != ipc.CodeNoSuchSandbox {
				t.Error(err)
			}
		}
	}
}
