package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/internal/need"
	"demesne/runner"

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
		{space{avail: 20 << 20, total: 100 << 20}, false}, // a small file system
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
	few := space{avail: 50 * gib, total: 100 * gib, inodes: 5, all: 1000}
	for _, c := range []struct {
		name       string
		start, now space
		grown      tally
		limit      int64
		want       string // part of the reason; empty: no reason
	}{
		{"below", roomy, roomy, tally{gib, 1000}, 2 * gib, ""},
		{"above", roomy, roomy, tally{3 * gib, 1}, 2 * gib, "3 GiB written to /out of 2 GiB"},
		{"files", roomy, roomy, tally{0, 600_000}, 2 * gib, "600000 files made in /out of 524288"},
		{"no limit", roomy, roomy, tally{3 * gib, 1 << 40}, None, ""},
		{"host full by it", roomy, full, tally{2 << 20, 1}, None, "has 512 MiB and 0 files left"},
		{"host full by another", roomy, full, tally{}, None, ""},
		{"host full before", full, full, tally{2 << 20, 1}, None, ""},
		{"no inode left by it", roomy, few, tally{0, 5000}, 2 * gib, "has 50 GiB and 5 files left"},
		{"no inode left by another", roomy, few, tally{0, 50}, 2 * gib, ""},
	} {
		if c.start.inodes = c.now.inodes; c.now == few {
			c.start.inodes = 100
		}
		d := disk{name: "/out", start: c.start, grown: c.grown}
		got := d.verdict(c.now, bound(c.limit))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestDue(t *testing.T) {
	now := time.Now()
	s := space{avail: 50 * gib, total: 100 * gib, inodes: 1 << 20, all: 1 << 21}
	less, fewer := s, s
	less.avail -= gib
	fewer.inodes -= 1 << 16
	for _, c := range []struct {
		name  string
		d     disk
		now   space
		limit int64
		want  bool
	}{
		{"nothing changed", disk{last: s, looked: now.Add(-diskPause)}, s, 2 * gib, false},
		{"a part of the limit gone", disk{last: s, looked: now.Add(-diskPause)}, less, 2 * gib, true},
		{"a part come back", disk{last: less, looked: now.Add(-diskPause)}, s, 2 * gib, true},
		{"inodes gone", disk{last: s, looked: now.Add(-diskPause)}, fewer, 2 * gib, true},
		{"measured too recently for its cost", disk{last: s, looked: now.Add(-time.Second), cost: 30 * time.Millisecond}, less, 2 * gib, false},
		{"measured long enough ago for any cost", disk{last: s, looked: now.Add(-diskPause), cost: time.Hour}, less, 2 * gib, true},
		{"a loss without explanation", disk{last: s, looked: now.Add(-diskEvery), cost: diskEvery, delay: delay{open: true}}, s, 2 * gib, true},
		{"a look runs", disk{last: s, looked: now.Add(-time.Minute), looking: true}, less, 2 * gib, false},
		{"files cannot be counted", disk{last: s, looked: now.Add(-time.Minute), based: true, exact: false}, less, 2 * gib, false},
		{"long ago", disk{last: s, looked: now.Add(-time.Minute)}, s, 2 * gib, true},
		{"in doubt", disk{last: s, looked: now.Add(-diskPause), doubt: 1}, s, 2 * gib, true},
		{"not settled", disk{last: s, looked: now.Add(-diskPause), clean: 1}, s, 2 * gib, true},
		{"no limit", disk{last: s, looked: now.Add(-diskPause)}, less, None, false},
	} {
		if got := c.d.due(c.now, bound(c.limit), now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestOverdue: a loss that needs an explanation and gets none in time counts as the sandbox's, whatever a workload
// does to the looks. Each character is a poll after 200 ms, with the end of a look that began at the poll before:
//
//	.  none; the look still runs
//	c  found no place that hides files      h  found one       m  directories changed
//	f  found the lost files
//	w  the walk alone explains the loss     !  the runner was stopped for an hour
//	+  none, and others write 100 MiB more  C  like c, and others write 100 MiB more
func TestOverdue(t *testing.T) {
	const limit = 50 << 20
	small, big := usage{whole: true}, usage{whole: true, tally: tally{files: large + 1}}
	roomy := space{avail: 50 * gib, total: 100 * gib}
	tight := space{avail: gib + 300<<20, total: 100 * gib}
	dots := strings.Repeat(".", 50)
	for _, c := range []struct {
		name  string
		start space
		limit int64
		lost  int64 // MiB, from the first poll
		walk  *usage
		polls string
		end   int // the poll that ends the sandbox; 0: none
		why   string
	}{
		{"no look ends", roomy, limit, 100, &small, dots, 11, "could not be counted in 2s"},
		{"no look ends, and the directory is large", roomy, limit, 100, &big, dots, 31, "could not be counted in 6s"},
		{"not even the first look ends", roomy, limit, 100, nil, dots, 31, "could not be counted in 6s"},
		{"looks find a place that hides files", roomy, limit, 100, &small, "hhhh", 3, "because of sockets"},
		{"one does, and the next never ends", roomy, limit, 100, &big, "h" + dots, 11, "because of sockets"},
		{"clean looks, and the next never ends", roomy, limit, 100, &small, "cc" + dots, 11, "could not be counted"},
		{"looks that change their mind", roomy, limit, 100, &small, strings.Repeat("hc", 9), 5, "because of sockets"},
		{"directories always change", roomy, limit, 100, &small, strings.Repeat("m", 20), 9, "change during the count"},
		{"others wrote", roomy, limit, 100, &small, "ccc" + dots, 0, ""},
		{"others write without end", roomy, limit, 100, &small, strings.Repeat("C", 50), 0, ""},
		{"others write after a slow look", roomy, limit, 100, &small, ".......ccc" + dots, 0, ""},
		{"others wrote, and then the sandbox with blind looks", roomy, limit, 100, &small, "ccc....+" + dots, 18, "could not be counted"},
		{"the loss has gone to files in sight", roomy, limit, 100, &small, "f", 1, "100 MiB written"},
		{"an eighth more than the limit is open to doubt", roomy, limit, 56, &small, dots, 0, ""},
		{"the walk explains it", roomy, limit, 56, &small, strings.Repeat("w", 50), 0, ""},
		{"the runner was stopped", roomy, limit, 100, &small, "!ccc" + dots, 0, ""},
		{"a full file system, no look ends", tight, None, 400, &small, dots, 11, "the file system of /out has"},
		{"a full file system, others filled it", tight, None, 400, &small, "ccc" + dots, 0, ""},
		{"room on the file system and no limit", roomy, None, 400, &small, dots, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &disk{name: "/out", start: c.start, ledger: &ledger{}}
			if c.walk != nil {
				d.settle(nil, &look{of: d, first: true, usage: usage{whole: true}})
				d.large = c.walk.files > large
			}
			now, end, why := c.start, 0, ""
			now.avail -= c.lost << 20
			begun := d.look(0, now, bound(c.limit))
			for i, poll := range c.polls {
				if poll == '+' || poll == 'C' {
					now.avail -= 100 << 20
				}
				elapsed := 200 * time.Millisecond
				if poll == '!' {
					elapsed = time.Hour
				}
				if !strings.ContainsRune(".!+", poll) {
					l := begun
					l.usage = usage{whole: true}
					switch l.search = (&search{}); poll {
					case 'h':
						l.search.where = "sockets"
					case 'm':
						l.moving = true
					case 'f':
						l.search.bytes = l.lost.bytes
					case 'w':
						l.search = nil
					}
					d.settle(nil, l)
				}
				d.overdue(now, bound(c.limit), elapsed)
				if why = d.verdict(now, bound(c.limit)); why != "" {
					end = i + 1
					break
				}
				if !strings.ContainsRune(".!+", poll) {
					begun = d.look(0, now, bound(c.limit))
				}
			}
			if end != c.end || !strings.Contains(why, c.why) {
				t.Errorf("poll %d: %q", end, why)
			}
		})
	}
}

// TestWeigh: a loss beyond the files found counts as the sandbox's only after repeated evidence of hidden
// files. Where files cannot be hidden, it is attributed to other programs.
func TestWeigh(t *testing.T) {
	const hiding, moving, full, below = 'h', 'm', 'F', '-'
	gap := tally{100, 1}
	for _, c := range []struct {
		looks         string // ' ' is a measurement without evidence
		mine, settled bool   // after the last measurement
	}{
		{"", false, false},
		{"h", false, false},
		{"hhh", true, false},
		{"hh h", true, false}, // one clean measurement does not reset the doubt
		{"h  h  h", true, false},
		{"mmmmmmmm", false, false},
		{"mmmmmmmmm", true, false},
		{"mmmmmmmm   ", false, true},
		{"  ", false, false},
		{"   ", false, true},
		{"hh   hh", false, true},
		{"F", false, false},
		{"FF", true, false},
		{"hh-h", false, false}, // below the limit even with the whole loss
		{"---------", false, false},
	} {
		d, mine := disk{}, false
		for _, l := range c.looks {
			mine = d.weigh(l == hiding || l == full || l == below, l == moving, l != below, l == full, gap)
		}
		if settled := d.others == gap; mine != c.mine || settled != c.settled {
			t.Errorf("%q: mine %v, settled %v", c.looks, mine, settled)
		}
	}
}

// TestLost: sandboxes on a shared file system do not answer for each other's writes, nor for space that is
// freed again.
func TestLost(t *testing.T) {
	l := &ledger{}
	l.add(1, tally{7, 7}) // from a sandbox that has ended
	d := disk{dev: 1, ledger: l, since: l.add(1, tally{}), start: space{avail: 1000}}
	l.add(1, tally{300, 0})
	l.add(2, tally{5000, 0})
	d.known = tally{50, 0}
	l.add(1, d.known)
	if got := d.lost(space{avail: 600}); got != (tally{100, 0}) {
		t.Errorf("%+v", got)
	}
}

func TestDeleted(t *testing.T) {
	s := &search{dev: unix.Mkdev(0, 0x2f), super: unix.Mkdev(0xfe, 0), overlay: unix.Mkdev(0, 0x30)}
	for line, want := range map[string]uint64{
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 fe:00 1234      /out/#1234 (deleted)":    1234,
		"7f0c9d2e6000-7f0c9d2ee000 r--s 00000000 00:2f 7      /out/a b (deleted)":         7,
		"7f0c9d2e6000-7f0c9d2ee000 r--s 00000000 00:30 8      /usr/lib/x.so (deleted)":    8,
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 fe:00 1234      /out/x":                  0,
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:01 1025      /memfd:x (deleted)":      0,
		"7f0c9d2e6000-7f0c9d2ee000 rw-p 00000000 00:00 0":                                 0,
		"7f0c9d2e6000-7f0c9d2ee000 rw-p 00000000 00:00 0                          [heap]": 0,
		"": 0,
	} {
		if got, ok := s.deleted([]byte(line)); ok != (want != 0) || ok && got != want {
			t.Errorf("%q: %d %v", line, got, ok)
		}
	}
}

func TestSteady(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(root+"/a/b", 0o755), os.WriteFile(root+"/f", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	walk := func() usage { return measure(dir, bound(None), nil) }
	u := walk()
	for !u.steady(dir, nil) { // file timestamps advance in kernel ticks
		u = walk()
	}
	os.Rename(root+"/f", root+"/a/b/f")
	if u.steady(dir, nil) {
		t.Error("a file that went from one directory to another is not seen")
	}
	for u = walk(); !u.steady(dir, nil); u = walk() {
	}
	os.RemoveAll(root + "/a")
	if u.steady(dir, nil) {
		t.Error("directories that went are not seen")
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
	os.Symlink("/", root+"/d/slash")                       // points outside the tree
	if f, err := os.Create(root + "/sparse"); err == nil { // sparse: large size, no blocks
		f.Truncate(1 << 30)
		f.Close()
	}
	deep := root + "/deep"
	for range 300 { // a leak of one descriptor per level would show
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
	u := measure(dir, bound(None), nil)
	if u.bytes < 2<<20 || u.bytes > 4<<20 || !u.whole || u.files < 310 {
		t.Errorf("%+v", u)
	}
	if u = measure(dir, tally{1, None}, nil); u.files > 20 {
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
	// Deeper than PATH_MAX, created step by step as a sandbox would.
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
	if u := measure(dir, bound(None), nil); u.whole || u.files == 0 {
		t.Errorf("%+v", u)
	}
}

// TestMeasureBounded: directories with long paths, of which each is cheap to make, do not make a walk endless.
func TestMeasureBounded(t *testing.T) {
	root := t.TempDir()
	deep := root + strings.Repeat("/"+strings.Repeat("n", 200), (unix.PathMax-len(root)-10)/201)
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range maxPaths/(len(deep)-len(root)) + 10 {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", deep, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	paths := 0
	u := measure(dir, bound(None), nil)
	for _, path := range u.dirs {
		paths += len(path)
	}
	if u.whole || paths > maxPaths+unix.PathMax {
		t.Errorf("whole %v, %d bytes of paths", u.whole, paths)
	}
	quit := make(chan struct{})
	close(quit)
	if u := measure(dir, bound(None), quit); len(u.dirs) > 1 {
		t.Errorf("walks on after the end: %d directories", len(u.dirs))
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
	pids, tasks := processes(os.Getpid())
	if len(pids) != 1 || pids[0] != os.Getpid() || tasks < 2 {
		t.Error(pids, tasks)
	}
	if _, alive := resident([]int{1 << 30}); alive {
		t.Error("a missing process is alive")
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

// TestWatchShort: a moment without descriptors ends no watchdog, and no limit is held that could not be set.
func TestWatchShort(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	a := newAlarm()
	w := &watch{g: &Group{host: bare()}, quit: make(chan struct{}), over: a.over}
	restore := need.Descriptors(t, 0)
	_, alive := resident([]int{os.Getpid()})
	_, err = bind(os.Getpid(), 1e6)
	disks := w.disks([]Written{{Dir: dir, Name: "/out"}})
	restore()
	if !alive || !errors.Is(err, unix.EMFILE) || len(disks) > 0 {
		t.Errorf("alive %t, bound %v, watched %d", alive, err, len(disks))
	}
	a.wait(t, runner.DiskFull)
	if !strings.Contains(a.detail, "/out cannot be watched: ") {
		t.Error(a.detail)
	}
}

// TestListStays: a path that a sandbox replaces by a link does not lead out of the tree.
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
