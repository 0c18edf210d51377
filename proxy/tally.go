package proxy

import (
	"time"

	"demesne/proxy/audit"
)

// share is the part of a log that is for records of one verdict.
type share struct {
	total, left int64 // bytes
	held        int64 // of left, for lines that will come
	kinds       map[tallyKey]*tally
	oldest      []*tally // of kinds, first
}

// maxKinds bounds the kinds of decisions whose repetitions are counted. The oldest is forgotten first.
const maxKinds = 512

func newShare(total int64) share {
	return share{total: total, left: total, kinds: map[tallyKey]*tally{}}
}

func (s *share) room() int64 { return s.left - s.held }

// counts says whether repetitions of r are counted: of what was denied and of queries, always; of what else was
// allowed, in the second half of the share, so that a sandbox that asks for the same again and again never fills it.
func (s *share) counts(r audit.Record) bool {
	switch r.Verdict {
	case audit.Denied:
		return true
	case audit.Allowed:
		return r.Via == "dns" || s.left < s.total/2
	}
	return false
}

// forgotten gives the kind that the next one takes the place of, or nil.
func (s *share) forgotten() *tally {
	if len(s.oldest) < maxKinds {
		return nil
	}
	t := s.oldest[0]
	s.oldest = s.oldest[1:]
	delete(s.kinds, keyOf(t.rec))
	return t
}

// remember counts r's kind from now on, of which a line was written.
func (s *share) remember(r audit.Record, size int64) {
	if s.room() < size {
		return
	}
	t := &tally{rec: r, size: size, total: 1}
	s.kinds[keyOf(r)] = t
	s.oldest = append(s.oldest, t)
	s.held += size
}

// tallyKey is what records have in common that are counted together.
type tallyKey struct {
	via, host, request, address, verdict, rule, reason, err string
	port                                                    uint16
}

func keyOf(r audit.Record) tallyKey {
	return tallyKey{r.Via, r.Host, r.Request, r.Address, r.Verdict, r.Rule, r.Reason, r.Error, r.Port}
}

// tally counts decisions of a kind.
type tally struct {
	rec   audit.Record // the sum of those that are not written; its texts are the kind's
	size  int64        // of a line, at most
	total int
	since int // that are not written
}

func (t *tally) add(r audit.Record) {
	if t.since == 0 {
		t.rec.First, t.rec.In, t.rec.Out, t.rec.Millis = r.Time, 0, 0, 0
	}
	t.total++
	t.since++
	t.rec.Time, t.rec.Last = r.Time, r.Time
	t.rec.In += r.In
	t.rec.Out += r.Out
	t.rec.Millis += r.Millis
}

// take gives the record of what was not written. One of a single decision is as any other.
func (t *tally) take() audit.Record {
	r := t.rec
	if r.Count = t.since; r.Count == 1 {
		r.Count, r.First, r.Last = 0, time.Time{}, time.Time{}
	}
	t.since = 0
	return r
}
