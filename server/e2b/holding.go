package e2b

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
)

// holding counts what one volume holds. What the API writes is counted byte by byte. For what sandboxes write, the whole
// size that a volume may reach is counted while a sandbox mounts it, from before its start until after its end: the
// sandbox's watchdog ends it if the volume grows beyond that. Then the volume is measured.
type holding struct {
	ledger *ledger

	turn sync.Mutex // held while names of the volume change

	mu      sync.Mutex
	counted Stored // by the API, or by the last measurement
	mounts  int
	writing int  // calls of the API that write files
	ended   bool // the volume was removed
}

// take counts what the API is about to write.
func (h *holding) take(n Stored) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return fs.ErrNotExist
	}
	if most := h.ledger.most.Volume; most > 0 && n.Bytes > most-h.counted.Bytes {
		return quotaError{"bytes in one volume", most}
	}
	if err := h.ledger.take(n); err != nil {
		return err
	}
	h.counted = h.counted.plus(n)
	return nil
}

// write counts calls that write files.
func (h *holding) write(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writing += n
}

// give takes back what was removed, but not more than was counted: a sandbox may have written it.
func (h *holding) give(n Stored) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = Stored{Bytes: min(n.Bytes, h.counted.Bytes), Files: min(n.Files, h.counted.Files)}
	h.counted = h.counted.plus(n.negative())
	h.ledger.add(n.negative())
}

// reserved is the size that a mounted volume counts in addition to its content.
func (h *holding) reserved() Stored { return Stored{Bytes: h.ledger.most.Volume} }

// mount counts one more sandbox. Without force it fails if the volume could then pass the ceiling.
func (h *holding) mount(force bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return fs.ErrNotExist
	case h.mounts > 0:
	case force:
		h.ledger.add(h.reserved())
	default:
		if err := h.ledger.take(h.reserved()); err != nil {
			return err
		}
	}
	h.mounts++
	return nil
}

// unmount counts one sandbox less, which has ended. It measures the volume before it gives the reservation back.
func (h *holding) unmount(dir *os.Root, name string) {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	last := h.mounts == 1
	h.mu.Unlock()
	if last {
		h.measure(dir, name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mounts--; h.mounts == 0 {
		h.ledger.add(h.reserved().negative())
	}
}

func (h *holding) mounted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mounts > 0
}

// settle measures the volume.
func (h *holding) settle(dir *os.Root, name string) error {
	h.turn.Lock()
	defer h.turn.Unlock()
	return h.measure(dir, name)
}

// measure replaces the count by what is there. What cannot be counted counts as a full volume. turn is held. A count that
// writes of the API have raised meanwhile is not lowered.
func (h *holding) measure(dir *os.Root, name string) error {
	h.mu.Lock()
	before := h.counted
	h.mu.Unlock()
	is, err := measure(dir, name)
	if errors.Is(err, errMeasure) {
		is.Bytes = max(is.Bytes, h.ledger.most.Volume)
	} else if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.writing > 0 || h.counted != before { // the measurement does not see what is being uploaded
		is = Stored{Bytes: max(is.Bytes, h.counted.Bytes), Files: max(is.Files, h.counted.Files)}
	}
	h.ledger.add(is.plus(h.counted.negative()))
	h.counted = is
	return err
}

// end gives everything back: the volume was removed.
func (h *holding) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.ledger.add(h.counted.negative())
	h.counted = Stored{}
}

// missing returns what a directory and its parents will count that do not exist.
func missing(root *os.Root, name string) (n Stored) {
	for ; name != "."; name = path.Dir(name) {
		if _, err := root.Lstat(name); err == nil {
			return n
		}
		n = n.plus(Stored{Bytes: entryCost, Files: 1})
	}
	return n
}

// makes calls f, which makes what is missing of a name, and counts that before. turn is held.
func (c *content) makes(name string, f func() error) error {
	n := missing(c.root, name)
	if err := c.held.take(n); err != nil {
		return err
	}
	err := f()
	if err != nil {
		c.held.give(missing(c.root, name))
	}
	return err
}
