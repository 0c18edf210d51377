package limits

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// Written is a host directory that a sandbox may write.
type Written struct {
	Dir   *os.File
	Whole bool // count what Dir contains when the watch begins, too
	Upper bool // Dir holds the upper of an image or of the sandbox's tree
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

	seen   space     // file system state at the last poll
	last   space     // file system state at the last measurement
	next   time.Time // earliest time of the next measurement
	looked time.Time
	exact  bool  // files can be counted; otherwise the file system's loss counts
	others tally // loss attributed to other programs so far
	doubt  int   // see weigh
	clean  int   // consecutive measurements that found no place to hide files

	grown tally  // usage attributed to the sandbox
	where string // place that may hide the files not found; "" if none
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
// goroutine measures the directories later.
func (w *watch) disks(dirs []Written) []*disk {
	var out []*disk
	for _, d := range dirs {
		f, err := dup(d.Dir)
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
			dir: f, name: filepath.Join("/", filepath.Base(f.Name())), dev: st.Dev, whole: d.Whole, upper: d.Upper,
			start: s, seen: s, last: s, ledger: l, since: l.add(st.Dev, tally{}),
		})
	}
	return out
}

const (
	diskEvery = 200 * time.Millisecond // poll interval for a file system that changes
	diskIdle  = time.Second            // poll interval for an idle file system
	diskAnew  = 10 * time.Second       // longest time between two measurements
	diskShare = 50                     // measuring takes at most 1/50 of a processor,
	diskHaste = 5                      // or 1/5 while the count is in doubt
)

// disk watches until a limit is exceeded. A statfs call costs a microsecond; measuring a tree takes up to a
// third of a second. So the statfs result decides when to measure.
func (w *watch) disk(pid1 int, disks []*disk) {
	for _, d := range disks {
		defer d.dir.Close()
		d.baseline(w)
	}
	limit := bound(w.g.want.Disk)
	for every := diskEvery; w.sleep(every); {
		changed := false
		for _, d := range disks {
			now, err := spaceOf(d.dir)
			if err != nil {
				continue
			}
			changed = changed || now != d.seen || d.doubt > 0 || d.clean > 0
			d.seen = now
			if d.due(now, limit, time.Now()) {
				d.look(w, pid1, now, limit)
			}
			if why := d.verdict(now, limit); why != "" {
				w.fire(runner.DiskFull, why)
				return
			}
		}
		if every = min(every*2, diskIdle); changed {
			every = diskEvery
		}
	}
}

// baseline measures the files that exist before the sandbox has written much. It attributes the file system's
// loss since the start to the sandbox.
func (d *disk) baseline(w *watch) {
	began := time.Now()
	u := measure(d.dir, tally{None, None}, w.quit)
	d.base, d.exact = u.tally, u.whole
	if now, err := spaceOf(d.dir); err == nil {
		d.base = d.base.minus(d.start.lost(now).atLeast(tally{})).atLeast(tally{})
	}
	if d.whole {
		d.had, d.base = d.base, tally{}
	}
	d.next = began.Add(diskShare * time.Since(began))
	if !d.exact {
		w.inexact(d)
	}
}

func (w *watch) inexact(d *disk) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.g.diskWhy = fmt.Sprintf("the files in %s cannot be counted one by one (more than %d, or not all readable): demesne counts the growth of the whole file system", d.name, maxEntries)
}

// due reports whether to measure now: when the file system has lost or regained 1/32 of the limit, while the count is
// in doubt, when the file system is nearly full and has changed, or after diskAnew without a measurement.
func (d *disk) due(now space, limit tally, t time.Time) bool {
	if t.Before(d.next) {
		return false
	}
	if d.doubt > 0 || d.clean > 0 || low(now) && now != d.last || t.Sub(d.looked) > diskAnew {
		return true
	}
	moved := d.last.lost(now)
	moved = moved.atLeast(tally{}.minus(moved))
	return limit.bytes != None && (moved.bytes >= max(limit.bytes/32, 64<<10) || moved.files >= max(limit.files/32, 64))
}

// look measures the files that the sandbox has written.
func (d *disk) look(w *watch, pid1 int, now space, limit tally) {
	began := time.Now()
	lost := d.lost(now)
	d.where = ""
	if d.exact {
		enough := limit
		if limit.bytes != None {
			enough = limit.plus(d.base)
		}
		u := measure(d.dir, enough, w.quit)
		if d.exact = u.whole; d.exact {
			d.count(u, pid1, lost, limit, low(now))
		} else {
			w.inexact(d)
		}
	}
	if !d.exact {
		d.grown, d.doubt, d.clean = d.grown.atLeast(lost), 0, 0
	}
	share := time.Duration(diskShare)
	if d.doubt > 0 || d.clean > 0 {
		share = diskHaste
	}
	d.last, d.looked = now, time.Now()
	d.next = d.looked.Add(share * d.looked.Sub(began))
}

// lost returns the file system's loss since the sandbox began, without the amounts other sandboxes account for.
func (d *disk) lost(now space) tally {
	elsewhere := d.ledger.add(d.dev, tally{}).minus(d.since).minus(d.known)
	return d.start.lost(now).minus(elsewhere)
}

// count computes the sandbox's usage from the walk's result and the file system's loss.
func (d *disk) count(u usage, pid1 int, lost, limit tally, low bool) {
	found := u.minus(d.base)
	gap := lost.minus(d.others).minus(found).atLeast(tally{})
	if found.passes(limit) || !gap.passes(slack(limit)) && !(low && gap.passes(little)) {
		d.doubt, d.clean, d.grown = 0, 0, found
		d.note(found)
		return
	}
	hidden := d.unnamed(pid1)
	found = found.plus(hidden.tally)
	gap = lost.minus(d.others).minus(found).atLeast(tally{})
	moving := hidden.where == "" && !u.steady(d.dir)
	d.grown = found
	matters := low || found.plus(gap).passes(limit)
	if d.weigh(hidden.where != "", moving, matters, low, gap) {
		d.grown = found.plus(gap)
		d.where = cmp.Or(hidden.where, "directories that change during the count")
	}
	d.note(found)
}

const (
	// certain is the amount of doubt that counts as proof. Ordinary programs also send descriptors, replace
	// mapped files, and change directories, so one measurement proves nothing.
	certain  = 9
	hides    = 3 // weight of a measurement that found a place to hide files
	moves    = 1 // weight of a measurement that may have missed moved files
	innocent = 3 // consecutive clean measurements that attribute a loss to other programs
)

// weigh reports whether the unexplained loss of the file system counts as the sandbox's. It matters only near
// the limit or on a nearly full file system. After enough consecutive measurements that found no place to hide
// files, weigh attributes the loss to other programs.
func (d *disk) weigh(hiding, moving, matters, low bool, gap tally) bool {
	switch {
	case !hiding && !moving:
		d.clean++
	case !matters:
		d.doubt, d.clean = 0, 0
	case hiding:
		d.doubt, d.clean = d.doubt+hides, 0
	default:
		d.doubt, d.clean = d.doubt+moves, 0
	}
	if d.clean >= innocent {
		d.others = d.others.plus(gap)
		d.doubt, d.clean = 0, 0
	}
	return matters && d.doubt >= certain || low && d.doubt >= 2*hides
}

// slack returns the discrepancy tolerated without a search of the processes: an eighth of the limit.
func slack(limit tally) tally {
	if limit.bytes == None {
		return limit
	}
	return tally{limit.bytes / 8, limit.files / 8}
}

// note records the sandbox's usage in the ledger for other sandboxes. If the file system lost less than the
// walk found, other programs removed files. The sandbox gains no room from that.
func (d *disk) note(found tally) {
	known := found.minus(d.had)
	d.ledger.add(d.dev, known.minus(d.known))
	d.known = known
	if now, err := spaceOf(d.dir); err == nil {
		d.others = d.others.atMost(d.lost(now).minus(found))
	}
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
	case low(now) && d.grown.passes(little) && (now.avail < d.start.avail || now.inodes < d.start.inodes):
		return fmt.Sprintf("the file system of %s has %s and %d files left (watchdog)", d.name, size(now.avail), now.inodes)
	}
	return ""
}
