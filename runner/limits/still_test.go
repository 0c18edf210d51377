package limits

import (
	"os"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

// TestStill checks that a sandbox is still only while PID 1 has no descendant, with and without a control group that
// counts, and that a channel of before a command's start is closed after it.
func TestStill(t *testing.T) {
	if ordinary(t) {
		stillIn(t, bare())
	}
}

func stillIn(t *testing.T, h *Host) {
	g := groupIn(t, h, "still", runner.Limits{})
	w := &watch{g: g, quit: make(chan struct{})}
	s := start(t, g, `echo up; read x; sleep 60 >/dev/null & echo begun; read x; kill $!; wait; echo over; read x`)
	if got := s.line(); got != "up" {
		t.Fatalf("%q, not up", got)
	}
	before := w.still(s.pid())
	if before == nil || before != w.still(s.pid()) {
		t.Fatal("PID 1 has no child, and is not still")
	}
	s.say()
	if got := s.line(); got != "begun" {
		t.Fatalf("%q, not begun", got)
	}
	if g.Stir(); w.still(s.pid()) != nil {
		t.Error("still with a process")
	}
	select {
	case <-before:
	default:
		t.Error("a command started, and a rest goes on")
	}
	s.say()
	if got := s.line(); got != "over" {
		t.Fatalf("%q, not over", got)
	}
	if after := w.still(s.pid()); after == nil || after == before {
		t.Error("the process ended, and the sandbox is not still anew")
	}
}

// TestStillness checks that a command that started and ended between two looks begins the time anew.
func TestStillness(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := groupIn(t, bare(), "stillness", runner.Limits{})
	w, now := &watch{g: g}, time.Now()
	shell := start(t, g, "read x")
	var s stillness
	for i, c := range []struct {
		stir bool
		want int // the look since which it is still
	}{{false, 0}, {false, 0}, {true, 2}, {false, 2}, {true, 4}} {
		if c.stir {
			g.Stir()
		}
		s.look(w, shell.pid(), now.Add(time.Duration(i)*time.Second))
		if want := now.Add(time.Duration(c.want) * time.Second); s.stirred == nil || !s.since.Equal(want) {
			t.Errorf("look %d: still since %v", i, s.since.Sub(now))
		}
	}
}

// TestSettled checks which disks need no look while the sandbox is still.
func TestSettled(t *testing.T) {
	since, roomy := time.Now(), space{avail: 50 * gib, total: 100 * gib}
	fine := disk{exact: true, looked: since.Add(time.Second), cost: time.Millisecond}
	for _, c := range []struct {
		name string
		made func(*disk)
		now  space
		want bool
	}{
		{"a look since", func(*disk) {}, roomy, true},
		{"a look that began before", func(d *disk) { d.cost = 2 * time.Second }, roomy, false},
		{"a look runs", func(d *disk) { d.looking = true }, roomy, false},
		{"files cannot be counted", func(d *disk) { d.exact = false }, roomy, false},
		{"in doubt", func(d *disk) { d.doubt = 1 }, roomy, false},
		{"not attributed yet", func(d *disk) { d.clean = 1 }, roomy, false},
		{"a loss without explanation", func(d *disk) { d.open = true }, roomy, false},
		{"a full file system", func(*disk) {}, space{avail: gib / 2, total: 100 * gib}, false},
	} {
		d := fine
		if c.made(&d); d.settled(since, c.now) != c.want {
			t.Errorf("%s: %v", c.name, !c.want)
		}
	}
}

// TestExcuse checks that a loss while the sandbox is still is attributed to others, and that the files of the sandbox
// count all the same.
func TestExcuse(t *testing.T) {
	if !ordinary(t) {
		return
	}
	o := newWatched(t, 4<<20)
	if err := os.WriteFile(o.root+"/out/own", make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if why := o.look(); why != "" {
		t.Fatal(why)
	}
	if err := os.WriteFile(o.root+"/other", make([]byte, 50<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	now, err := spaceOf(o.d.dir)
	if err != nil {
		t.Fatal(err)
	}
	o.d.excuse(now)
	if o.d.others.bytes < 50<<20 || o.d.suspect(o.d.lost(now).minus(o.d.others), now, o.limit) {
		t.Errorf("others: %+v of %+v", o.d.others, o.d.lost(now))
	}
	if err := os.WriteFile(o.root+"/out/more", make([]byte, 2<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if why := o.look(); !strings.Contains(why, "5 MiB written to /out of 4 MiB") {
		t.Errorf("own files: %q", why)
	}
}
