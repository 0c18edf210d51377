package terminal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// agentsDir returns the directory of what agents at a terminal keep, and of what their sessions use. home applies unless
// demesne's files are elsewhere.
func agentsDir(home string) string {
	if dir, err := fsutil.StateDir("agents"); err == nil && os.Getenv(fsutil.StateVariable) != "" {
		return dir
	}
	return filepath.Join(home, ".demesne/agents")
}

// Session is the directory of one session. It is locked until the process ends, even if that is killed. So the next
// session, or demesne gc, can remove what a killed one left. Sandboxes see only directories inside it, and therefore cannot
// hold its lock.
//
//	config          files of the launch, read-only inside
//	home            with --fresh: the agent's home
//	requests.jsonl  a line for each request to the model
type Session struct {
	Path string
	all  *os.File // the directory of all sessions
	lock *os.File
}

// Open removes the directories of killed sessions, and makes one for a new session.
func Open(home string) (d *Session, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make directory of the session: %w", fsutil.Reason(err))
		}
	}()
	at := filepath.Join(agentsDir(home), ".sessions")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	all, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	// A sweep of another process must not find the new directory before its lock is held.
	guard, err := lockSessions(root)
	if err != nil {
		all.Close()
		return nil, err
	}
	defer guard.Close()
	sweepSessions(root)
	name := rand.Text()
	d = &Session{Path: filepath.Join(at, name), all: all}
	if err = root.Mkdir(name, 0o700); err == nil {
		d.lock, err = flock.TryDir(root, name, flock.Exclusive)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// lockSessions excludes other processes that make or remove directories of sessions, until the file is closed.
func lockSessions(root *os.Root) (*os.File, error) {
	f, err := root.Open(".")
	if err == nil {
		err = flock.Lock(f, flock.Exclusive)
	}
	return f, err
}

// sweepSessions removes the directories that no process has locked. It leaves what it cannot remove to a later call: a
// sandbox whose demesne was killed may still be ending.
func sweepSessions(root *os.Root) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if f, err := flock.TryDir(root, name, flock.Exclusive); err == nil {
			fsutil.RemoveAll(int(dir.Fd()), name)
			f.Close()
		}
	}
}

// RemoveSessions removes the directories of killed sessions.
func RemoveSessions(home string) error {
	root, err := os.OpenRoot(filepath.Join(agentsDir(home), ".sessions"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove directories of killed sessions: %w", err)
	}
	defer root.Close()
	guard, err := lockSessions(root)
	if err != nil {
		return fmt.Errorf("remove directories of killed sessions: %w", err)
	}
	defer guard.Close()
	sweepSessions(root)
	return nil
}

// Mkdir makes a directory of the session, and returns its path.
func (d *Session) Mkdir(name string) (string, error) {
	path := filepath.Join(d.Path, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make directory of the session: %w", fsutil.Reason(err))
	}
	return path, nil
}

// Close removes the directory.
func (d *Session) Close() {
	if d == nil {
		return
	}
	fsutil.RemoveAll(int(d.all.Fd()), filepath.Base(d.Path))
	d.all.Close()
	if d.lock != nil {
		d.lock.Close()
	}
}
