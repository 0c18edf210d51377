package progress

import (
	"sync"
	"time"

	"demesne/cli/app"
	"demesne/images/oci"
)

// Progress prints the progress of an image on stderr. On a terminal that can redraw, it rewrites a bar for each layer
// and a line for the image, and erases them in the end; elsewhere it prints a line for each completed step. A nil
// progress prints nothing. It has no timer: it prints only when an event arrives.
type Progress struct {
	on    *app.Console
	noun  string // `pull "python"`
	words progressWords
	term  bool
	now   func() time.Time

	mu     sync.Mutex
	layers map[oci.Digest]*layerState // both by digest and by DiffID
	order  []*layerState
	rate   rate
	drawn  time.Time
	lines  int // lines on the terminal
}

// layerState is the progress of one layer.
type layerState struct {
	name           string
	fetched, total int64
	begun          bool // its download, in this pull
	unpacking      bool
	unpacked       bool
}

// progressWords are the words for what happens to a layer: while it is copied, after that, and at its end.
type progressWords struct{ doing, did, end string }

const (
	rateOver  = 5 * time.Second
	rateAfter = time.Second // a shorter measurement means little
)

// rate measures the speed of a download over the last seconds.
type rate struct {
	moved int64
	marks []mark
}

type mark struct {
	at    time.Time
	moved int64
}

func (r *rate) add(now time.Time, n int64) {
	if n <= 0 {
		return
	}
	r.moved += n
	for len(r.marks) > 1 && now.Sub(r.marks[0].at) > rateOver {
		r.marks = r.marks[1:]
	}
	r.marks = append(r.marks, mark{now, r.moved})
}

// of returns bytes a second, or 0 if it is not known yet.
func (r *rate) of(now time.Time) float64 {
	if len(r.marks) == 0 || now.Sub(r.marks[0].at) < rateAfter {
		return 0
	}
	return float64(r.moved-r.marks[0].moved) / now.Sub(r.marks[0].at).Seconds()
}
