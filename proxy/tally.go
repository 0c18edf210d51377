package proxy

import (
	"time"
)

// share is the part of a log for records of one verdict.
type share struct {
	total, left int64 // bytes
	held        int64 // part of left that is reserved for later lines
	kinds       map[tallyKey]*tally
	oldest      []*tally // kinds in order of creation
}

// maxKinds bounds the kinds of decisions whose repetitions are counted. The oldest kind is dropped first.
const maxKinds = 512

func newShare(total int64) share {
	return share{total: total, left: total, kinds: map[tallyKey]*tally{}}
}

func (s *share) room() int64 { return s.left - s.held }

// counts reports whether repetitions of r are counted. Denials and DNS queries always are. Other allowed
// decisions are counted in the second half of the share, so that a sandbox cannot fill it by repeating a request.
func (s *share) counts(r Record) bool {
	switch r.Verdict {
	case Denied:
		return true
	case Allowed, Pending:
		return r.Via == "dns" || s.left < s.total/2
	}
	return false
}

// forgotten drops and returns the oldest kind if the share has as many as it may. Otherwise it returns nil.
func (s *share) forgotten() *tally {
	if len(s.oldest) < maxKinds {
		return nil
	}
	t := s.oldest[0]
	s.oldest = s.oldest[1:]
	delete(s.kinds, t.rec.key())
	return t
}

// remember counts r's kind from now on, if size bytes can be reserved. r itself is already written.
func (s *share) remember(r Record, size int64) {
	if s.room() < size {
		return
	}
	t := &tally{rec: r, size: size, total: 1}
	s.kinds[r.key()] = t
	s.oldest = append(s.oldest, t)
	s.held += size
}

// tallyKey holds the fields that are equal in all records of a kind.
type tallyKey struct {
	via, host, request, address, verdict, rule, reason, err string
	port                                                    uint16
}

func (r Record) key() tallyKey {
	return tallyKey{r.Via, r.Host, r.Request, r.Address, r.Verdict, r.Rule, r.Reason, r.Error, r.Port}
}

// tally counts the decisions of one kind.
type tally struct {
	rec   Record // sum of those not yet written; its texts are the kind's
	size  int64  // of its line, at most
	total int
	since int // decisions not yet written
}

func (t *tally) add(r Record) {
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

// take returns the record of the decisions not yet written. For a single decision it is an ordinary record.
func (t *tally) take() Record {
	r := t.rec
	if r.Count = t.since; r.Count == 1 {
		r.Count, r.First, r.Last = 0, time.Time{}, time.Time{}
	}
	t.since = 0
	return r
}
