package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
	"demesne/runner/ipc"
)

// EnvLinger names the variable for how long a runner stays after its last sandbox and caller, with its prepared
// sandboxes, for the next caller. It is a duration from 0 to [runner.MaxLinger]. The setting of the last caller
// applies.
const EnvLinger = "DEMESNE_LINGER"

// retireTime bounds the time that [Retire] waits for one runner.
const retireTime = 2 * time.Second

// lingerWanted returns the value of [EnvLinger], or nil if it is not set.
func lingerWanted() (*time.Duration, error) {
	text := os.Getenv(EnvLinger)
	if text == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 || d > runner.MaxLinger {
		return nil, fmt.Errorf("%s %q: not a duration from 0 to %s", EnvLinger, text, runner.MaxLinger)
	}
	return &d, nil
}

// Lingers reports whether this user's programs may stay for a while after their last caller, as [EnvLinger] says.
func Lingers() bool {
	d, err := lingerWanted()
	return err == nil && (d == nil || *d > 0)
}

// Retire ends this user's lingering runners, of any build, and starts none. It returns the number of sandboxes in the
// other runners, which end together with their sandboxes.
func Retire(ctx context.Context) (sandboxes int, err error) {
	seen := map[string]bool{}
	for _, dir := range runDirs() {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		sockets, _ := filepath.Glob(filepath.Join(real, "*.sock"))
		for _, socket := range sockets {
			n, rerr := retire(ctx, &runDir{path: real, key: strings.TrimSuffix(filepath.Base(socket), ".sock")})
			sandboxes += n
			if rerr != nil {
				err = errors.Join(err, fmt.Errorf("end runner %q: %w", socket, rerr))
			}
		}
		if err != nil {
			return sandboxes, err
		}
	}
	return sandboxes, nil
}

// RemoveLeft removes what runners left in this user's run directories when they were killed together with their reapers.
func RemoveLeft() {
	for _, dir := range runDirs() {
		removeLeft(dir)
	}
}

// removeLeft leaves a directory of another user alone, and one behind a link: names below /tmp are anyone's.
func removeLeft(dir string) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() {
		return
	}
	locks, _ := filepath.Glob(filepath.Join(dir, "*.lock"))
	for _, path := range locks {
		lock, err := flock.TryOpen(path, os.O_RDWR, flock.Exclusive)
		if err != nil { // a runner or its reaper lives, or has ended meanwhile
			continue
		}
		d := runDir{path: dir, key: strings.TrimSuffix(filepath.Base(path), ".lock")}
		for _, suffix := range []string{".sock", ".log", ".lock"} { // the lock last: a starting runner takes it first
			os.Remove(d.file(suffix))
		}
		lock.Close()
	}
}

// live returns the number of sandboxes that the runner itself has. Its list also contains the persistent sandboxes of
// other runners, without a PID.
func live(infos []runner.Info) (n int) {
	for _, i := range infos {
		if i.PID != 0 {
			n++
		}
	}
	return n
}

// held reports whether a runner, or its reaper, holds the lock. A starting runner holds it before it listens.
func (d *runDir) held() bool {
	held, _ := flock.Held(d.file(".lock"))
	return held
}

// retire connects to a runner, tells it not to linger, and disconnects.
func retire(ctx context.Context, d *runDir) (sandboxes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, retireTime)
	defer cancel()
	sock, err := d.dial()
	for ; err != nil; sock, err = d.dial() {
		if !d.held() || ctx.Err() != nil {
			return 0, nil // it has ended, or is about to
		}
		time.Sleep(time.Millisecond)
	}
	conn := ipc.NewConn(sock)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := &Client{dir: d, retire: true, outMap: &outMap{}}
	if err := c.introduce(ctx, conn, sock, &launcher{}); err != nil {
		conn.Close()
		return 0, nil // it was about to end
	}
	c.peer = ipc.NewPeer(conn, c.handle)
	go c.peer.Serve()
	defer c.peer.Close()
	infos, err := listOf(ctx, c.peer) // without siblings' sandboxes: Retire connects to siblings itself
	return live(infos), err
}
