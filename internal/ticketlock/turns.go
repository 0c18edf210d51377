// Package turns has processes that want the same thing wait for each other, in the order they
// came. There is no daemon: a turn is a FIFO in a directory that they share,
//
//	DIR/lock                    flock(2)ed while somebody looks at the others or comes
//	DIR/NAME.00000007.WHO       a turn, open in the process that has it
//
// and its turn has come when no turn of that name with a lower number is there. Whoever waits
// reads the one before: a FIFO ends for its reader when its last writer is gone, however it went.
// So a turn whose process was killed is no longer in the way, nobody polls, and to wait costs
// a descriptor.
package ticketlock

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

// Turn is one's place in a line. It ends with [Turn.Leave] or the last process that has it open.
type Turn struct {
	dir, name string
	number    uint64
	path      string
	fifo      *os.File
}

// DefaultDir is ~/.demesne/turns.
func DefaultDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find line: %w", err)
	}
	return filepath.Join(home, ".demesne", "turns"), nil
}

// Join takes the last place in the line of that name. who tells turns apart, for [Adopt]; both are
// one word without dots and slashes.
func Join(dir, name, who string) (*Turn, error) {
	for _, word := range []string{name, who} {
		if word == "" || strings.ContainsAny(word, "./\x00") {
			return nil, fmt.Errorf("join line: %q is not one word", word)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("join line: %w", err)
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
		// Open for both directions it never ends by itself, and never waits for the other side.
		t.fifo, err = os.OpenFile(t.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("join line: %w", err)
	}
	return t, nil
}

// Adopt is the turn that another process joined as who, and whose file it has handed to us.
func Adopt(dir, name, who string, f *os.File) (*Turn, error) {
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
		return nil, fmt.Errorf("adopt turn of %q: %w", who, err)
	}
	return t, nil
}

// File is what another process has to have open for the turn to stay.
func (t *Turn) File() *os.File { return t.fifo }

// Wait returns when nobody is before us, or ctx ends.
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
			return fmt.Errorf("wait for turn: %w", err)
		}
		os.Remove(before) // its owner may have been killed
	}
}

// before is the nearest turn before this one; "": there is none.
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

// Gone returns when no process has the FIFO open to write, or ctx ends. One that is not there
// is gone. Nothing may ever be written to it.
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
		case n == 0 && err != nil: // io.EOF, or what tells us no more
			return nil
		}
	}
}

// Leave gives the place up. It may be called again, and while somebody else has the turn open.
func (t *Turn) Leave() {
	os.Remove(t.path)
	t.fifo.Close()
}

// Count is how many turns of that name there are, those included whose owners were killed and
// whom nobody waited for since.
func Count(dir, name string) (int, error) {
	t := Turn{dir: dir, name: name}
	all, err := t.all()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return len(all), err
}

// place is a turn as it is on disk.
type place struct {
	number    uint64
	who, path string
}

// all lists the turns of t's name, the first in line first.
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

// locked calls f while nobody else comes.
func (t *Turn) locked(f func([]place) error) error {
	lock, err := os.OpenFile(filepath.Join(t.dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return err
	}
	all, err := t.all()
	if err != nil {
		return err
	}
	return f(all)
}
