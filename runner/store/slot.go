package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"demesne/internal/flock"
)

// A slot stands for a persistent sandbox that may have no record: one that is about to be made, or whose files are not
// kept. It is the file DIR/.slot-ID, locked by the runner that has it. Its lines are the sandbox's frontend, and the id of
// the sandbox that it replaces. A runner counts, takes a slot and renames one only while it has DIR locked, so that two
// runners never count at the same time. It may drop a slot at any time: a count then has it or not, and both are right. A
// slot ends with its runner: an unlocked file is a remainder.
const slotPrefix = ".slot-"

// countWait bounds the wait for a runner that counts. Counting takes milliseconds, unless that runner was stopped.
const countWait = 10 * time.Second

// Slot is a slot of this runner.
type Slot struct {
	d    *Store
	id   string
	lock *os.File
}

// Counting locks the store against other runners that count. It is not for concurrent use by one runner.
func (d *Store) Counting() (io.Closer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), countWait)
	defer cancel()
	for {
		f, err := flock.TryDir(d.root, ".", flock.Exclusive)
		if !errors.Is(err, flock.ErrLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("count sandboxes: %w", ErrBusy)
		case <-time.After(time.Millisecond):
		}
	}
}

// Slot takes the slot of a sandbox, which may replace another one. The store is locked by Counting.
func (d *Store) Slot(id, frontend, replaces string) (*Slot, error) {
	f, err := d.root.OpenFile(slotPrefix+id, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(frontend + "\n" + replaces)
		err = errors.Join(err, flock.Try(f, flock.Exclusive))
	}
	if err != nil {
		if f != nil {
			errors.Join(f.Close(), d.root.Remove(slotPrefix+id))
		}
		return nil, fmt.Errorf("reserve sandbox: %w", err)
	}
	return &Slot{d, id, f}, nil
}

// Rename gives the slot to another sandbox. The store is locked by Counting, so that no runner sees both ids or none.
func (s *Slot) Rename(id string) error {
	err := s.d.root.Rename(slotPrefix+s.id, slotPrefix+id)
	if err == nil {
		s.id = id
	}
	return err
}

// Close gives the slot up.
func (s *Slot) Close() error {
	return errors.Join(s.d.root.Remove(slotPrefix+s.id), s.lock.Close())
}

// SlotInfo is what the file of a slot says.
type SlotInfo struct{ ID, Frontend, Replaces string }

// Slots returns the slots of all runners, without those of except. It removes the slots of killed runners. The store is
// locked by Counting.
func (d *Store) Slots(except map[string]bool) (slots []SlotInfo, err error) {
	list, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("count sandboxes: %w", err)
	}
	for _, e := range list {
		id, ok := strings.CutPrefix(e.Name(), slotPrefix)
		if !ok || except[id] {
			continue
		}
		f, err := d.root.Open(e.Name())
		if err != nil {
			continue
		}
		if err := flock.Try(f, flock.Shared); errors.Is(err, flock.ErrLocked) {
			text, _ := io.ReadAll(io.LimitReader(f, slotMost))
			frontend, replaces, _ := strings.Cut(string(text), "\n")
			slots = append(slots, SlotInfo{id, frontend, replaces})
		} else if err == nil {
			d.root.Remove(e.Name())
		}
		f.Close()
	}
	return slots, nil
}

// slotMost is longer than any frontend with an id.
const slotMost = 1 << 10

// sweepSlots removes the slots of killed runners.
func (d *Store) sweepSlots() error {
	lock, err := d.Counting()
	if err != nil {
		return err
	}
	defer lock.Close()
	_, err = d.Slots(nil)
	return err
}
