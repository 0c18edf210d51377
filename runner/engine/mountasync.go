package engine

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"demesne/netns"
	"demesne/runner/ipc"
	"demesne/runner/network"
)

// laying is a tree in the making. PID 1 waits for it when it needs it, see [Inside].
type laying struct {
	done chan struct{} // closed when err and took are set
	err  error
	took time.Duration

	shown sync.Once
}

// layTree starts making the tree.
func (s *sandbox) layTree(m *ipc.Message, out *network.Egress) *laying {
	l := &laying{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(l.done)
		if l.err = s.trust(out); l.err == nil {
			l.err = s.mount(m)
		}
		l.took = time.Since(began)
	}()
	return l
}

func (l *laying) wait() error {
	<-l.done
	return l.err
}

// show makes the tree appear where PID 1 expects it. Further calls do nothing.
func (l *laying) show(s *sandbox, ns *netns.NS) error {
	if err := l.wait(); err != nil {
		return err
	}
	l.shown.Do(func() {
		if ns.Sysfs != nil {
			l.err = s.tree.MountSys(ns.Sysfs)
		}
		if l.err == nil {
			l.err = s.tree.Show(s.root(), s.dev())
		}
	})
	return l.err
}

// root returns the directory where PID 1 finds its tree.
func (s *sandbox) root() string { return filepath.Join(s.e.shown(), s.id, "root") }

func (s *sandbox) dev() string { return filepath.Join(s.e.shown(), s.id, "dev") }

// makePlace makes the directories root and dev.
func (s *sandbox) makePlace() error {
	for _, dir := range []string{filepath.Dir(s.root()), s.root(), s.dev()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		s.undoLate(func() { os.Remove(dir) })
	}
	return nil
}
