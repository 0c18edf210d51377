package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Turn is a place in a queue of processes that want the same resource. It ends with [Turn.Leave], or with the last
// process that has it open. The queue needs no daemon: a turn is a FIFO in a directory that the processes share,
//
//	DIR/lock                    locked while a process joins or looks at the others
//	DIR/NAME.00000007.WHO       a turn, open in the process that has it
//
// A turn has come when no turn of that name with a lower number exists. A waiting process reads the FIFO of the
// turn before its own: a FIFO reports end-of-file to its reader when its last writer exits, for whatever reason. So
// the turn of a killed process blocks no other, waiting needs no polling, and it costs one descriptor.
type Turn struct {
	dir, name string
	number    uint64
	path      string
	fifo      *os.File
}

// QueueDir returns ~/.demesne/turns.
func QueueDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find queue: %w", err)
	}
	return filepath.Join(home, ".demesne", "turns"), nil
}

// JoinQueue takes the last place in the queue of that name. who identifies the turn, for [AdoptTurn]. Both are one word
// without dots and slashes.
func JoinQueue(dir, name, who string) (*Turn, error) {
	for _, word := range []string{name, who} {
		if word == "" || strings.ContainsAny(word, "./\x00") {
			return nil, fmt.Errorf("join queue: %q is not one word", word)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("join queue: %w", err)
	}
	t := &Turn{dir: dir, name: name, number: 1}
	err := t.locked(func(all []place) (err error) {
		if len(all) > 0 {
			t.number = all[len(all)-1].number + 1
		}
		t.path = filepath.Join(dir, fmt.Sprintf("%s.%08d.%s", name, t.number, who))
		if err := unix.Mkfifo(t.path, 0o600); err != nil {
			return err
		}
		// Opened for both directions, the FIFO never reports end-of-file to its owner, and the open does not block.
		t.fifo, err = os.OpenFile(t.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("join queue: %w", err)
	}
	return t, nil
}

// Left returns when who has no turn in the queue of that name, or with an error when ctx ends.
func Left(ctx context.Context, dir, name, who string) error {
	t := Turn{dir: dir, name: name}
	all, err := t.all()
	i := slices.IndexFunc(all, func(p place) bool { return p.who == who })
	if err != nil || i < 0 {
		return err
	}
	return Gone(ctx, all[i].path)
}

// AdoptTurn returns the turn that another process joined as who, and whose file f it has passed to this process.
func AdoptTurn(dir, name, who string, f *os.File) (*Turn, error) {
	t := &Turn{dir: dir, name: name, fifo: f}
	err := t.locked(func(all []place) error {
		for _, p := range all {
			if p.who == who {
				t.number, t.path = p.number, p.path
				return nil
			}
		}
		return fs.ErrNotExist
	})
	if err != nil {
		return nil, fmt.Errorf("take over ticket of %q: %w", who, err)
	}
	return t, nil
}

// File returns the FIFO of the turn. The turn lasts while a process has it open.
func (t *Turn) File() *os.File { return t.fifo }

// Wait returns when no turn is ahead of this one, or with an error when ctx ends.
func (t *Turn) Wait(ctx context.Context) error {
	for {
		before, err := t.before()
		if err == nil && before == "" {
			return nil
		}
		if err == nil {
			err = Gone(ctx, before)
		}
		if err != nil {
			return fmt.Errorf("wait in queue: %w", err)
		}
		os.Remove(before) // its owner may have been killed
	}
}

// Ahead returns how many turns are ahead of this one. The turn of a killed process counts until another process waits behind
// it.
func (t *Turn) Ahead() (n int) {
	t.locked(func(all []place) error {
		for _, p := range all {
			if p.number < t.number {
				n++
			}
		}
		return nil
	})
	return n
}

// before returns the path of the nearest turn ahead of this one, or "".
func (t *Turn) before() (path string, err error) {
	err = t.locked(func(all []place) error {
		for _, p := range all {
			if p.number < t.number {
				path = p.path
			}
		}
		return nil
	})
	return path, err
}

// Gone returns when no process has the FIFO open for writing, or with an error when ctx ends. A FIFO that does not
// exist counts as gone. No process may ever write to it.
func Gone(ctx context.Context, fifo string) error {
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	var b [1]byte
	for {
		n, err := f.Read(b[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n == 0 && err != nil: // io.EOF, or another error after which the FIFO reports nothing more
			return nil
		}
	}
}

// Leave gives the place up. It may be called again, and while another process has the turn open.
func (t *Turn) Leave() {
	os.Remove(t.path)
	t.fifo.Close()
}

// CountTurns returns the number of turns of that name. The turn of a killed process counts until another process waits
// behind it.
func CountTurns(dir, name string) (int, error) {
	t := Turn{dir: dir, name: name}
	all, err := t.all()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return len(all), err
}

// place is a turn as stored on disk.
type place struct {
	number    uint64
	who, path string
}

// all lists the turns of t's name, the first in the queue first.
func (t *Turn) all() (all []place, err error) {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		parts := strings.Split(e.Name(), ".")
		if len(parts) != 3 || parts[0] != t.name {
			continue
		}
		if n, err := strconv.ParseUint(parts[1], 10, 64); err == nil {
			all = append(all, place{n, parts[2], filepath.Join(t.dir, e.Name())})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return int(min(1, max(-1, int64(a.number-b.number)))) })
	return all, nil
}

// locked calls f while holding the lock, so that no process joins meanwhile.
func (t *Turn) locked(f func([]place) error) error {
	lock, err := os.OpenFile(filepath.Join(t.dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := Lock(lock, Exclusive); err != nil {
		return err
	}
	all, err := t.all()
	if err != nil {
		return err
	}
	return f(all)
}
