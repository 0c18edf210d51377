package client

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/wire"
)

// copying waits until files of a sandbox are being copied.
func (c corner) copying() {
	c.Helper()
	for range 10000 {
		list, _ := os.ReadDir(c.dir + "/s")
		for _, e := range list {
			if up, err := os.ReadDir(c.dir + "/s/" + e.Name() + "/up/root/e"); strings.HasPrefix(e.Name(), ".old-") && err == nil && len(up) > 0 {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.Fatal("nothing is copied")
}

// TestForkUntold: a fork that is finished when nobody can be told of it is not there.
func TestForkUntold(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	s := c.create(client, runner.Spec{Name: "one"})
	c.sh(s, "mkdir /root/e; for i in $(seq 100); do head -c 2000000 /dev/urandom > /root/e/$i; done; sleep 1000 > /dev/null 2>&1 &")
	other := c.connect()
	go other.Snapshot(ctx, "one", "")
	c.copying()
	other.Close()
	for range 1000 { // it is finished, and then removed
		if list, _ := os.ReadDir(c.dir + "/s"); len(list) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	// Nor is one whose id came, when who got it dies before saying that it is known.
	other = c.connect()
	for _, known := range []bool{false, true} {
		f, err := other.Snapshot(ctx, "one", "")
		if err == nil && known {
			_, err = other.Inspect(ctx, f.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer client.Stop(ctx, f.ID)
	}
	other.Close()
	for range 1000 {
		if all, err := client.List(ctx); err == nil && len(all) == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if all, err := client.List(ctx); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := client.Stop(ctx, "one"); err != nil {
		t.Error(err)
	}
}

// TestForkRemoved: of what is removed meanwhile there is no fork, of a part of its files least of all.
func TestForkRemoved(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	s := c.create(client, runner.Spec{Name: "one"})
	c.sh(s, "mkdir /root/e; for i in $(seq 100); do head -c 2000000 /dev/urandom > /root/e/$i; done; sleep 1000 > /dev/null 2>&1 &")
	forked := make(chan error)
	go func() {
		_, err := client.Fork(ctx, "one", "", t.TempDir())
		forked <- err
	}()
	c.copying()
	if err := client.Stop(ctx, "one"); err != nil {
		t.Error(err)
	}
	if err := <-forked; code(err) != wire.CodeGone {
		t.Error(err)
	}
	if list, _ := os.ReadDir(c.dir + "/s"); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
}

// TestStopTwice: who comes second to remove what is asleep, or to use it, is told that it is not there any more.
func TestStopTwice(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	for range 5 {
		c.create(client, runner.Spec{Name: "one"})
		if err := client.Halt(ctx, "one"); err != nil {
			t.Fatal(err)
		}
		ends := make(chan error)
		for range 3 {
			go func() { ends <- client.Stop(ctx, "one") }()
			go func() {
				_, err := client.Diff(ctx, "one")
				ends <- err
			}()
		}
		for range 6 {
			if err := <-ends; err != nil && code(err) != wire.CodeUnknown {
				t.Error(err)
			}
		}
	}
}
