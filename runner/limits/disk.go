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
	Whole bool // what is in it when the watch begins counts, too
	Upper bool // what is written over an image, or over the sandbox's tree, is in it
}

// disk is one watched directory.
//
// Two counts stand side by side. The walk over the directory finds files by their names, and
// the search in the sandbox's processes those without one: that is exact, but does not see
// what is mapped and closed, on its way through a socket, or moved about while it looks. What
// the file system lost since the sandbox began sees everything, also what others write. So the
// exact count holds for as long as there is nowhere to hide: what the file system lost beyond
// it is then the others', and is settled as theirs. While there is, it is the sandbox's.
type disk struct {
	dir    *os.File
	name   string // as the sandbox sees it: /out
	dev    uint64
	whole  bool // what was there counts, too
	upper  bool
	start  space
	base   tally // what was there before the sandbox wrote
	ledger *ledger
	since  tally // the ledger's sum at the start
	had    tally // what counts and was there at the start
	known  tally // what is in the ledger for this directory

	seen   space     // at the last look at the file system
	last   space     // when it was last measured
	next   time.Time // when it may be measured again
	looked time.Time
	exact  bool  // files can be counted; else the file system's loss counts
	others tally // what the file system lost to others, as last settled
	doubt  int   // see weigh
	clean  int   // looks in a row that found nowhere to hide

	grown tally  // what counts as the sandbox's
	where string // unless all of it was found: where the rest may be
}

// space is what a file system has left.
type space struct {
	avail, total int64 // bytes
	inodes, all  int64 // all is 0 where inodes are not counted
}

// lost is what has been taken between two looks. Some file systems make inodes as they are
// needed: what counts is how many are in use.
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

// bound is the disk limit as a tally. An empty file takes no byte that is counted, but an inode:
// a directory may have as many as would fill the limit with files of a page.
func bound(limit int64) tally {
	if limit == None {
		return tally{None, None}
	}
	return tally{limit, max(limit/4096, 1024)}
}

// disks prepares the directories. What a file system has left is noted at once,
// what a directory holds is measured later, on the watch's own goroutine.
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
	diskEvery = 200 * time.Millisecond // how often a changing file system is looked at
	diskIdle  = time.Second            // and one that does not change
	diskAnew  = 10 * time.Second       // a measure without any sign of change
	diskShare = 50                     // measuring takes at most 1/50 of a processor,
	diskHaste = 5                      // or 1/5 while there is a doubt
)

// disk watches until a limit is passed. Asking a file system how full it is costs
// a microsecond, measuring a tree up to a third of a second: the first says when
// the second is due.
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

// baseline measures what is there before the sandbox has written much; what the
// file system lost meanwhile is taken to be the sandbox's.
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
	w.g.diskWhy = fmt.Sprintf("the files in %s cannot be counted one by one (more than %d, or not all readable): the growth of its whole file system counts", d.name, maxEntries)
}

// due says whether to measure: when the file system lost or regained a part of the
// limit since the last time, when it is nearly full, or for once without a sign.
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

// discovery measures what the sandbox has written.
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

// lost is what the file system lost since the sandbox began, but for what other ones account for.
func (d *disk) lost(now space) tally {
	elsewhere := d.ledger.add(d.dev, tally{}).minus(d.since).minus(d.known)
	return d.start.lost(now).minus(elsewhere)
}

// count decides what counts as the sandbox's, of what a walk found and the file system lost.
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
		d.where = cmp.Or(hidden.where, "directories that change while they are looked through")
	}
	d.note(found)
}

const (
	// certain is how much doubt is enough. Programs send descriptors, replace files that are
	// mapped, and change directories: for once that means nothing.
	certain  = 9
	hides    = 3 // the weight of a look that found where files can be hidden
	moves    = 1 // and of one that may have missed files that were moved
	innocent = 3 // how many looks in a row without either settle a loss as the others'
)

// weigh says whether what the file system lost beyond what was found counts as the
// sandbox's, if that matters. If nothing can be hidden, look after look, it is settled as the others'.
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

// slack is what may be amiss without a search: an eighth of the limit.
func slack(limit tally) tally {
	if limit.bytes == None {
		return limit
	}
	return tally{limit.bytes / 8, limit.files / 8}
}

// note tells the others what is known of the sandbox. Where the file system lost less than was
// found, other programs removed files: that gives the sandbox no more room.
func (d *disk) note(found tally) {
	known := found.minus(d.had)
	d.ledger.add(d.dev, known.minus(d.known))
	d.known = known
	if now, err := spaceOf(d.dir); err == nil {
		d.others = d.others.atMost(d.lost(now).minus(found))
	}
}

// little is what does not matter, even where there is not much left.
var little = tally{1 << 20, 1000}

// low says whether a file system is nearly full: less than 256 MiB or 1 %,
// whichever is more, but on a small one no more than a tenth.
func low(s space) bool {
	return s.avail < max(s.total/100, min(256<<20, s.total/10)) || s.all > 0 && s.inodes < s.all/100
}

// verdict says why the sandbox is to end, or "". On a full file system it is, only
// if it wrote something itself.
func (d *disk) verdict(now space, limit tally) string {
	rest := ""
	if d.where != "" {
		rest = ", counting what its file system lost, for there are " + d.where
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
