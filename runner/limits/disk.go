package limits

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// Written is a host directory that a sandbox may write.
type Written struct {
	Dir   *os.File
	Name  string // for reasons: its path as the sandbox sees it; empty: the last element of Dir's name
	Whole bool   // count what Dir contains when the watch begins, too
	Upper bool   // Dir holds the upper of an image or of the sandbox's tree
}

// disk is one watched directory.
//
// It combines two measurements. A walk over the directory finds named files; a search of the sandbox's
// processes finds open files without a name. Together they give an exact count. They miss files that are mapped
// and closed, files in transit through a socket, and files moved during the walk.
//
// The second measurement is how much space the file system lost since the sandbox began. It misses nothing, but
// includes the writes of other programs.
//
// The exact count applies while the sandbox has no place to hide files. The file system's further loss is then
// attributed to other programs for good. While files can be hidden, that loss counts as the sandbox's.
//
// A workload can make both measurements slow or blind. So a look does a bounded amount of work, and runs beside
// the polls: no decision waits for it. A loss that needs an explanation, and gets none in time from a look that
// began after it, counts as the sandbox's: see overdue.
type disk struct {
	dir    *os.File
	name   string // path as the sandbox sees it: /out
	dev    uint64
	whole  bool // count files that existed at the start, too
	upper  bool
	start  space
	base   tally // files that existed before the sandbox wrote and do not count
	ledger *ledger
	since  tally // the ledger's sum at the start
	had    tally // files that existed at the start and do count
	known  tally // the part of the ledger that this directory reported

	seen    space     // file system state at the last poll
	last    space     // file system state at the last measurement
	looked  time.Time // end of the last measurement
	cost    time.Duration
	looking bool  // a look runs
	based   bool  // base is known
	exact   bool  // files can be counted; otherwise the file system's loss counts
	others  tally // loss attributed to other programs so far
	doubt   int   // see weigh
	clean   int   // consecutive measurements that found no place to hide files

	evidence
	delay

	grown tally  // usage attributed to the sandbox
	where string // place that may hide the files not found; "" if none
}

// evidence says what to expect of the next looks, by the last one.
type evidence struct {
	large bool   // it found many entries
	hides string // place that may hide files; "" if none
}

// delay is the time that a loss has gone without an explanation.
type delay struct {
	clock   time.Duration // time that the polls have seen pass
	open    bool          // a loss needs an explanation,
	pending time.Duration // and has needed it since this time of clock
}

// space is the free and total space of a file system.
type space struct {
	avail, total int64 // bytes
	inodes, all  int64 // all is 0 where the file system does not count inodes
}

// lost returns the space taken between s and now. Some file systems allocate inodes on demand, so it compares
// inodes in use instead of free inodes.
func (s space) lost(now space) tally {
	return tally{s.avail - now.avail, (now.all - now.inodes) - (s.all - s.inodes)}
}

func spaceOf(f *os.File) (space, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return space{}, os.NewSyscallError("fstatfs", err)
	}
	return space{
		avail: int64(fs.Bavail) * fs.Bsize, total: int64(fs.Blocks) * fs.Bsize,
		inodes: int64(fs.Ffree), all: int64(fs.Files),
	}, nil
}

// bound converts the disk limit to a tally. An empty file uses no counted byte, but it uses an inode. The inode
// bound is the number of 4 KiB files that fill the limit, at least 1024.
func bound(limit int64) tally {
	if limit == None {
		return tally{None, None}
	}
	return tally{limit, max(limit/4096, 1024)}
}

// disks prepares the directories. It records the free space of each file system at once. The watch's own
// goroutine measures the directories later. A directory that cannot be watched for now ends the sandbox.
func (w *watch) disks(dirs []Written) []*disk {
	var out []*disk
	for _, d := range dirs {
		f, err := dup(d.Dir)
		if fsutil.Short(err) {
			w.fire(runner.DiskFull, fmt.Sprintf("%s cannot be watched: %v", cmp.Or(d.Name, filepath.Join("/", filepath.Base(d.Dir.Name()))), err))
		}
		if err != nil {
			continue
		}
		var st unix.Stat_t
		s, err := spaceOf(f)
		if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
			f.Close()
			continue
		}
		l := &w.g.host.ledger
		out = append(out, &disk{
			dir: f, name: cmp.Or(d.Name, filepath.Join("/", filepath.Base(f.Name()))), dev: st.Dev, whole: d.Whole, upper: d.Upper,
			start: s, seen: s, last: s, ledger: l, since: l.add(st.Dev, tally{}),
		})
	}
	return out
}

const (
	diskEvery = 200 * time.Millisecond // poll interval for a file system that changes
	diskIdle  = time.Second            // poll interval for an idle file system
	diskAnew  = 10 * time.Second       // longest time between two measurements
	diskPause = 2 * time.Second        // longest pause after a measurement because of its cost
	diskShare = 50                     // otherwise measuring takes at most 1/50 of a processor,
	diskHaste = 5                      // 1/5 while the count is in doubt,
	diskHurry = 1                      // or half while a loss needs an explanation
)

// disk watches until a limit is exceeded. A statfs call costs a microsecond; measuring a tree takes up to a
// third of a second. So the statfs result decides when to measure.
func (w *watch) disk(pid1 int, disks []*disk) {
	var looks sync.WaitGroup
	found := make(chan *look, len(disks)) // each disk has one look at a time
	begin := func(l *look) {
		l.of.looking = true
		looks.Go(func() { l.take(w.quit); found <- l })
	}
	for _, d := range disks {
		defer d.dir.Close()
		begin(&look{of: d, first: true, now: d.start, pid1: pid1, began: time.Now()})
	}
	defer looks.Wait()
	limit := bound(w.g.want.Disk)
	var still stillness
	var rests <-chan struct{}
	for every, last := diskEvery, time.Now(); w.pause(every, rests, found); {
		t := time.Now()
		elapsed, changed := t.Sub(last), false
		last = t
		still.look(w, pid1, t)
		rests = still.stirred
		for _, d := range disks {
			now, err := spaceOf(d.dir)
			if err != nil {
				continue
			}
			if still.stirred != nil && d.settled(still.since, now) {
				d.excuse(now)
				continue
			}
			rests = nil
			changed = changed || now != d.seen || d.looking || d.doubt > 0 || d.clean > 0
			d.seen = now
			if d.due(now, limit, t) {
				begin(d.look(pid1, now, limit))
			}
			d.overdue(now, limit, elapsed)
			if why := d.verdict(now, limit); why != "" {
				w.fire(runner.DiskFull, why)
				return
			}
		}
		switch every = min(every*2, diskIdle); {
		case slices.ContainsFunc(disks, func(d *disk) bool { return d.open }):
			every = diskEvery / 2
		case rests != nil:
			every = restMost
		case changed:
			every = diskEvery
		}
	}
}

// pause is rest, and also ends when a look has ended and is settled.
func (w *watch) pause(d time.Duration, stirred <-chan struct{}, found <-chan *look) bool {
	t := time.NewTimer(together(time.Now(), d))
	defer t.Stop()
	select {
	case <-w.quit:
		return false
	case l := <-found:
		l.of.settle(w, l)
	case <-stirred:
	case <-t.C:
	}
	return true
}

func (w *watch) inexact(d *disk) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.g.diskWhy = fmt.Sprintf("the files in %s cannot be counted one by one (more than %d, too deep, or not all readable): demesne counts the growth of the whole file system", d.name, maxEntries)
}

// due reports whether to measure now: when the file system has lost or regained 1/32 of the limit, while the count is
// in doubt, when the file system is nearly full and has changed, or after diskAnew without a measurement.
func (d *disk) due(now space, limit tally, t time.Time) bool {
	if d.looking || d.based && !d.exact || t.Sub(d.looked) < d.pause() {
		return false
	}
	if d.open || d.doubt > 0 || d.clean > 0 || low(now) && now != d.last || t.Sub(d.looked) > diskAnew {
		return true
	}
	moved := d.last.lost(now)
	moved = moved.atLeast(tally{}.minus(moved))
	return limit.bytes != None && (moved.bytes >= max(limit.bytes/32, 64<<10) || moved.files >= max(limit.files/32, 64))
}

// pause returns the time between the end of the last measurement and the next.
func (d *disk) pause() time.Duration {
	share := time.Duration(diskShare)
	switch {
	case d.open:
		share = diskHurry
	case d.doubt > 0 || d.clean > 0:
		share = diskHaste
	}
	return max(min(share*d.cost, diskPause), diskEvery)
}

// lost returns the file system's loss since the sandbox began, without the amounts other sandboxes account for.
func (d *disk) lost(now space) tally {
	elsewhere := d.ledger.add(d.dev, tally{}).minus(d.since).minus(d.known)
	return d.start.lost(now).minus(elsewhere)
}

const (
	// patience is the longest time that a loss may go without an explanation. Several looks fit into it, unless the
	// workload makes them slow. A walk over a large directory is slow by itself, and others may have made its files.
	patience      = 2 * time.Second
	patienceLarge = 6 * time.Second
	large         = 10_000 // entries

	// longestPoll bounds what one poll adds to the clock. A runner that was stopped has not looked meanwhile.
	longestPoll = time.Second
)

// overdue counts a loss as the sandbox's if no look has explained it in time. It needs no look, and so no workload
// can delay it. It is called with each poll; elapsed is the time since the last one.
func (d *disk) overdue(now space, limit tally, elapsed time.Duration) {
	d.clock += min(elapsed, longestPoll)
	lost := d.lost(now)
	most := lost.minus(d.others) // all that can be the sandbox's
	switch {
	case d.based && !d.exact:
		d.grown, d.open = d.grown.atLeast(lost), false
		return
	case !d.suspect(most, now, limit):
		d.open = false
		return
	case !d.open:
		d.open, d.pending = true, d.clock
	}
	wait := patience
	if d.hides == "" && (d.large || !d.based) {
		wait = patienceLarge
	}
	if d.clock-d.pending >= wait {
		d.grown = d.grown.atLeast(most)
		d.where = cmp.Or(d.hides, fmt.Sprintf("files that could not be counted in %v", wait))
	}
}

// suspect reports whether a loss needs an explanation. A look accepts a gap of slack or little without one.
func (d *disk) suspect(most tally, now space, limit tally) bool {
	if limit.bytes != None && most.passes(limit.plus(slack(limit))) {
		return true
	}
	return low(now) && d.emptier(now) && most.passes(little.plus(little))
}

// emptier reports whether the file system had more room when the sandbox began.
func (d *disk) emptier(now space) bool {
	return now.avail < d.start.avail || now.inodes < d.start.inodes
}

// slack returns the discrepancy tolerated without a search of the processes: an eighth of the limit.
func slack(limit tally) tally {
	if limit.bytes == None {
		return limit
	}
	return tally{limit.bytes / 8, limit.files / 8}
}

// little is the usage that is ignored even on a nearly full file system.
var little = tally{1 << 20, 1000}

// low reports whether a file system is nearly full. The bound is 256 MiB or 1 %, whichever is more, but at most
// a tenth of the file system. Fewer than 1 % free inodes also count.
func low(s space) bool {
	return s.avail < max(s.total/100, min(256<<20, s.total/10)) || s.all > 0 && s.inodes < s.all/100
}

// verdict returns the reason to end the sandbox, or "". A full file system is a reason only if the sandbox
// itself wrote to it.
func (d *disk) verdict(now space, limit tally) string {
	rest := ""
	if d.where != "" {
		rest = ", counting the loss of free space, because of " + d.where
	}
	switch {
	case limit.bytes != None && d.grown.bytes > limit.bytes:
		return fmt.Sprintf("%s written to %s of %s%s (watchdog)", size(d.grown.bytes), d.name, size(limit.bytes), rest)
	case limit.files != None && d.grown.files > limit.files:
		return fmt.Sprintf("%d files made in %s of %d%s (watchdog)", d.grown.files, d.name, limit.files, rest)
	case low(now) && d.grown.passes(little) && d.emptier(now):
		return fmt.Sprintf("the file system of %s has %s and %d files left (watchdog)", d.name, size(now.avail), now.inodes)
	}
	return ""
}
