package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const gib = 1 << 30

func TestLow(t *testing.T) {
	for _, c := range []struct {
		s    space
		want bool
	}{
		{space{avail: 10 * gib, total: 100 * gib}, false},
		{space{avail: gib / 2, total: 100 * gib}, true},
		{space{avail: 200 << 20, total: 10 * gib}, true},
		{space{avail: 20 << 20, total: 100 << 20}, false}, // a small one
		{space{avail: 5 << 20, total: 100 << 20}, true},
		{space{avail: 10 * gib, total: 100 * gib, inodes: 5, all: 1000}, true},
		{space{avail: 10 * gib, total: 100 * gib, inodes: 500, all: 1000}, false},
	} {
		if got := low(c.s); got != c.want {
			t.Errorf("%+v: %v", c.s, got)
		}
	}
}

func TestVerdict(t *testing.T) {
	roomy, full := space{avail: 50 * gib, total: 100 * gib}, space{avail: gib / 2, total: 100 * gib}
	for _, c := range []struct {
		name         string
		start, now   space
		grown, limit int64
		want         string // part of the reason; empty: none
	}{
		{"below", roomy, roomy, gib, 2 * gib, ""},
		{"above", roomy, roomy, 3 * gib, 2 * gib, "3 GiB written to /out of 2 GiB"},
		{"no limit", roomy, roomy, 3 * gib, None, ""},
		{"host full by it", roomy, full, 2 << 20, None, "has 512 MiB and 0 files left"},
		{"host full by another", roomy, full, 0, None, ""},
		{"host full before", full, full, 2 << 20, None, ""},
	} {
		d := disk{name: "/out", start: c.start, grown: c.grown}
		got := d.verdict(c.now, c.limit)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestDue(t *testing.T) {
	now := time.Now()
	s := space{avail: 50 * gib, total: 100 * gib}
	less := space{avail: 49 * gib, total: 100 * gib}
	for _, c := range []struct {
		name  string
		d     disk
		now   space
		limit int64
		want  bool
	}{
		{"nothing changed", disk{last: s, looked: now}, s, 2 * gib, false},
		{"a part of the limit gone", disk{last: s, looked: now}, less, 2 * gib, true},
		{"a part come back", disk{last: less, looked: now}, s, 2 * gib, true},
		{"measured too recently for its cost", disk{last: s, looked: now, next: now.Add(time.Second)}, less, 2 * gib, false},
		{"long ago", disk{last: s, looked: now.Add(-time.Minute)}, s, 2 * gib, true},
		{"no limit", disk{last: s, looked: now}, less, None, false},
	} {
		if got := c.d.due(c.now, c.limit, now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMeasure(t *testing.T) {
	root := t.TempDir()
	outside := t.TempDir()
	write := func(path string, n int) {
		t.Helper()
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(outside+"/big", 9<<20)
	write(root+"/a", 1<<20)
	write(root+"/d/e/f/b", 1<<20)
	os.Link(root+"/a", root+"/d/again")                    // one file, two names
	os.Symlink(outside, root+"/link")                      // leads out
	os.Symlink("/", root+"/d/slash")                       // leads out
	if f, err := os.Create(root + "/sparse"); err == nil { // large, empty
		f.Truncate(1 << 30)
		f.Close()
	}
	deep := root + "/deep"
	for range 300 { // a descriptor each would be noticed
		deep += "/x"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	u := measure(dir, 0, nil)
	if u.bytes < 2<<20 || u.bytes > 4<<20 || !u.whole || u.entries < 310 {
		t.Errorf("%+v", u)
	}
	if u = measure(dir, 1, nil); u.entries > 20 {
		t.Errorf("did not end early: %+v", u)
	}
}

func TestMeasureTooDeep(t *testing.T) {
	root := t.TempDir()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// Deeper than a path can be long, made the way a sandbox would: step by step.
	r, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 200)
	for range 30 {
		if err := r.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := r.OpenRoot(name)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	r.Close()
	if u := measure(dir, 0, nil); u.whole || u.entries == 0 {
		t.Errorf("%+v", u)
	}
}

func TestRollup(t *testing.T) {
	const now = "Rss: 100 kB\nPss: 80 kB\nPss_Dirty: 1 kB\nPss_Anon: 30 kB\nPss_File: 40 kB\nPss_Shmem: 10 kB\nSwap: 9 kB\nSwapPss: 5 kB\n"
	const before = "Rss: 100 kB\nPss: 80 kB\nSwapPss: 5 kB\n"
	for text, want := range map[string]int64{now: 45 << 10, before: 85 << 10, "": 0} {
		if got := rollup([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestProcesses(t *testing.T) {
	pids := processes(os.Getpid())
	if len(pids) != 1 || pids[0] != os.Getpid() {
		t.Error(pids)
	}
	if _, alive := resident([]int{1 << 30}); alive {
		t.Error("a process that is not there is alive")
	}
	if parentOf(os.Getpid()) != os.Getppid() {
		t.Error(parentOf(os.Getpid()))
	}
	if n := strangers([]int{0, 7, 8}, []int{7}); n != 2 {
		t.Error(n)
	}
	if f := family(os.Getpid()); len(f) < 2 || f[0] != os.Getpid() || f[1] != os.Getppid() {
		t.Error(fmt.Sprint(f))
	}
}

// TestListStays: what a sandbox puts in the way of a path leads nowhere.
func TestListStays(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/in/below", 0o700), os.Mkdir(dir+"/out", 0o700), os.Symlink("../out", dir+"/in/link"), os.Symlink("below", dir+"/in/near")); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(dir + "/in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for path, want := range map[string]error{".": nil, "below": nil, "link": unix.ELOOP, "near/.": unix.ELOOP, "link/.": unix.ELOOP, "../out": unix.EXDEV, dir: unix.EXDEV} {
		if err := list(in, path, func(string, *unix.Stat_t) bool { return true }); !errors.Is(err, want) && !(want == unix.ELOOP && errors.Is(err, unix.ENOTDIR)) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
