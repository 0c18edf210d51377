package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"demesne/internal/flock"
)

// A slot stands for a persistent sandbox that may have no record: one that is about to be made, or whose files are not
// kept. It is the empty file DIR/.slot-ID.FRONTEND.OTHER, locked by the runner that holds it. FRONTEND is the sandbox's
// frontend in hexadecimal, and OTHER the id of the sandbox that it replaces: names need no space on a full disk. A runner
// counts, takes a slot and renames one only while it has DIR locked, so that two runners never count at the same time. It may
// drop a slot at any time: a count then includes it or not, and both are right. A slot ends with its runner: an unlocked file
// is a remainder.
const slotPrefix = ".slot-"

// countWait bounds the wait for a runner that counts. Counting takes milliseconds, unless that runner was stopped.
const countWait = 10 * time.Second

// Slot is a slot of this runner.
type Slot struct {
	SlotInfo
	d    *Store
	lock *os.File
}

// SlotInfo has the parts of a slot's name.
type SlotInfo struct{ ID, Frontend, Replaces string }

func (s SlotInfo) file() string {
	return slotPrefix + s.ID + "." + hex.EncodeToString([]byte(s.Frontend)) + "." + s.Replaces
}

// slotOf reads the name of a file. ok is false if it is not a slot.
func slotOf(file string) (s SlotInfo, ok bool) {
	rest, ok := strings.CutPrefix(file, slotPrefix)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return s, false
	}
	frontend, err := hex.DecodeString(parts[1])
	return SlotInfo{parts[0], string(frontend), parts[2]}, err == nil
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
	info := SlotInfo{id, frontend, replaces}
	f, err := d.root.OpenFile(info.file(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = flock.Try(f, flock.Exclusive)
	}
	if err != nil {
		if f != nil {
			errors.Join(f.Close(), d.root.Remove(info.file()))
		}
		return nil, fmt.Errorf("reserve sandbox: %w", err)
	}
	return &Slot{info, d, f}, nil
}

// Rename gives the slot to another sandbox. The store is locked by Counting, so that no runner sees both ids or none.
func (s *Slot) Rename(id string) error {
	now := s.SlotInfo
	now.ID = id
	err := s.d.root.Rename(s.file(), now.file())
	if err == nil {
		s.SlotInfo = now
	}
	return err
}

// Close gives the slot up.
func (s *Slot) Close() error {
	return errors.Join(s.d.root.Remove(s.file()), s.lock.Close())
}

// Slots returns the slots of all runners, without the sandboxes in except. It removes the slots of killed runners. The store is
// locked by Counting.
func (d *Store) Slots(except map[string]bool) (slots []SlotInfo, err error) {
	names, err := d.entries()
	if err != nil {
		return nil, fmt.Errorf("count sandboxes: %w", err)
	}
	for _, name := range names {
		info, ok := slotOf(name)
		if !ok || except[info.ID] {
			continue
		}
		f, err := d.root.Open(name)
		if err != nil {
			continue
		}
		if err := flock.Try(f, flock.Shared); errors.Is(err, flock.ErrLocked) {
			slots = append(slots, info)
		} else if err == nil {
			d.root.Remove(name)
		}
		f.Close()
	}
	return slots, nil
}

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
