package limits

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// disk is one watched directory.
type disk struct {
	dir   *os.File
	name  string // as the sandbox sees it: /out
	dev   uint64
	whole bool // what was there counts, too
	start space
	base  usage // what was there before the sandbox wrote

	seen   space     // at the last look at the file system
	last   space     // when it was last measured
	next   time.Time // when it may be measured again
	grown  int64     // what the sandbox wrote, as last measured
	exact  bool      // grown counts files; else it is the file system's
	looked time.Time
}

// space is what a file system has left.
type space struct {
	avail, total int64 // bytes
	inodes, all  int64 // all is 0 where inodes are not counted
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

// disks prepares the directories. What a file system has left is noted at once,
// what a directory holds is measured later, on the watch's own goroutine.
func (w *watch) disks(dirs []*os.File, whole bool) []*disk {
	var out []*disk
	for _, d := range dirs {
		f, err := dup(d)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		s, err := spaceOf(f)
		if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
			f.Close()
			continue
		}
		out = append(out, &disk{dir: f, name: filepath.Join("/", filepath.Base(f.Name())), dev: st.Dev, whole: whole, start: s, seen: s, last: s})
	}
	return out
}

const (
	diskEvery = 200 * time.Millisecond // how often a changing file system is looked at
	diskIdle  = time.Second            // and one that does not change
	diskAnew  = 10 * time.Second       // a measure without any sign of change
	diskShare = 50                     // measuring takes at most 1/50 of a processor
)

// disk watches until a limit is passed. Asking a file system how full it is costs
// a microsecond, measuring a tree up to a third of a second: the first says when
// the second is due.
func (w *watch) disk(pid1 int, disks []*disk) {
	for _, d := range disks {
		defer d.dir.Close()
		d.baseline(w)
	}
	for every := diskEvery; w.sleep(every); {
		changed := false
		for _, d := range disks {
			now, err := spaceOf(d.dir)
			if err != nil {
				continue
			}
			changed = changed || now != d.seen
			d.seen = now
			if d.due(now, w.g.want.Disk, time.Now()) {
				d.look(w, pid1, now)
			}
			if why := d.verdict(now, w.g.want.Disk); why != "" {
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
	d.base = measure(d.dir, 0, w.quit)
	d.exact = d.base.whole
	if now, err := spaceOf(d.dir); err == nil {
		d.base.bytes = max(0, d.base.bytes-max(0, d.start.avail-now.avail))
	}
	if d.whole {
		d.base.bytes = 0
	}
	d.next = began.Add(diskShare * time.Since(began))
	if !d.base.whole {
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
func (d *disk) due(now space, limit int64, t time.Time) bool {
	if t.Before(d.next) {
		return false
	}
	part := int64(math.MaxInt64)
	if limit != None {
		part = max(limit/32, 64<<10)
	}
	moved := now.avail - d.last.avail
	return moved >= part || -moved >= part || low(now) && now != d.last || t.Sub(d.looked) > diskAnew
}

// look measures what the sandbox has written.
func (d *disk) look(w *watch, pid1 int, now space) {
	began := time.Now()
	lost := max(0, d.start.avail-now.avail)
	limit := w.g.want.Disk
	if d.exact {
		enough := int64(0)
		if limit != None {
			enough = d.base.bytes + limit
		}
		u := measure(d.dir, enough, w.quit)
		d.grown = u.bytes - d.base.bytes
		if !u.whole {
			d.exact = false
			w.inexact(d)
		} else if limit != None && d.grown <= limit && lost > limit || low(now) {
			d.grown += nameless(processes(pid1), d.dev)
		}
	}
	if !d.exact {
		d.grown = max(d.grown, lost)
	}
	d.last, d.looked = now, time.Now()
	d.next = d.looked.Add(diskShare * d.looked.Sub(began))
}

// low says whether a file system is nearly full: less than 256 MiB or 1 %,
// whichever is more, but on a small one no more than a tenth.
func low(s space) bool {
	return s.avail < max(s.total/100, min(256<<20, s.total/10)) || s.all > 0 && s.inodes < s.all/100
}

// verdict says why the sandbox is to end, or "". On a full file system it is, only
// if it wrote something itself.
func (d *disk) verdict(now space, limit int64) string {
	const something = 1 << 20
	switch {
	case limit != None && d.grown > limit:
		return fmt.Sprintf("%s written to %s of %s (watchdog)", size(d.grown), d.name, size(limit))
	case low(now) && d.grown >= something && (now.avail < d.start.avail || now.inodes < d.start.inodes):
		return fmt.Sprintf("the file system of %s has %s and %d files left (watchdog)", d.name, size(now.avail), now.inodes)
	}
	return ""
}
