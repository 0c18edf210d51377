package limits

import (
	"cmp"
	"time"
)

// look is one measurement of a directory. It runs beside the polls and changes nothing of its disk; see settle.
type look struct {
	of    *disk
	first bool // the files that exist before the sandbox has written much
	now   space
	pid1  int
	lost  tally // the file system's loss at the beginning, without what is attributed to others
	limit tally
	began time.Time
	clock time.Duration // the disk's clock at the beginning

	usage          // the walk
	early  tally   // first: the file system's loss during the walk
	search *search // nil if the walk explains the loss
	moving bool    // files may have moved past the walk or the search
	cost   time.Duration
}

// look prepares a measurement of the files that the sandbox has written.
func (d *disk) look(pid1 int, now space, limit tally) *look {
	return &look{of: d, now: now, pid1: pid1, lost: d.lost(now).minus(d.others), limit: limit, began: time.Now(), clock: d.clock}
}

// take measures. It ends early when quit is closed.
func (l *look) take(quit <-chan struct{}) {
	defer func() { l.cost = time.Since(l.began) }()
	d := l.of
	if l.first {
		l.usage = measure(d.dir, tally{None, None}, quit)
		if now, err := spaceOf(d.dir); err == nil {
			l.early = d.start.lost(now).atLeast(tally{})
		}
		return
	}
	enough := l.limit
	if enough.bytes != None {
		enough = enough.plus(d.base)
	}
	if l.usage = measure(d.dir, enough, quit); !l.whole || l.explained() {
		return
	}
	l.search = d.unnamed(l.pid1, quit)
	l.moving = l.search.moving || !l.steady(d.dir, quit)
}

// found returns the sandbox's files that the look found.
func (l *look) found() tally {
	found := l.minus(l.of.base)
	if l.search != nil {
		found = found.plus(l.search.tally)
	}
	return found
}

// gap returns the part of the loss that the look did not find.
func (l *look) gap() tally { return l.lost.minus(l.found()).atLeast(tally{}) }

// explained reports whether the walk shows enough to decide.
func (l *look) explained() bool {
	gap := l.gap()
	return l.found().passes(l.limit) || !gap.passes(slack(l.limit)) && !(low(l.now) && gap.passes(little))
}

// settle applies the result of a look.
func (d *disk) settle(w *watch, l *look) {
	d.looking = false
	switch {
	case l.first:
		d.settleFirst(l)
	case l.whole:
		d.count(l)
	default:
		d.exact, d.doubt, d.clean = false, 0, 0
	}
	if !d.exact {
		w.inexact(d)
	}
	d.large = l.files > large
	if !l.first && d.doubt == 0 && d.clean == 0 {
		d.pending = max(d.pending, l.clock)
	}
	d.last, d.looked, d.cost = l.now, l.began.Add(l.cost), l.cost
}

// settleFirst applies the first look. It attributes the file system's loss since the start to the sandbox. Where files
// count that existed before, they decide at once: a sandbox that starts again and again must not write more each time.
func (d *disk) settleFirst(l *look) {
	d.based, d.exact = true, l.whole
	d.base = l.minus(l.early).atLeast(tally{})
	if d.whole {
		d.had, d.base, d.grown = d.base, tally{}, d.base
	}
}

// count computes the sandbox's usage from the look and the file system's loss.
func (d *disk) count(l *look) {
	d.grown, d.where, d.hides = l.found(), "", ""
	if l.search == nil {
		d.doubt, d.clean = 0, 0
		d.note(d.grown)
		return
	}
	gap := l.gap()
	d.hides = l.search.where
	matters := low(l.now) || d.grown.plus(gap).passes(l.limit)
	if d.weigh(d.hides != "", d.hides == "" && l.moving, matters, low(l.now), gap) {
		d.grown = d.grown.plus(gap)
		d.where = cmp.Or(l.search.where, "directories or processes that change during the count")
	}
	d.note(l.found())
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
