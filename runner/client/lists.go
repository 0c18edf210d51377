package client

import (
	"sync"
	"time"
)

// lists remembers the names in run directories, and the first parts of their keys: each call about a sandbox needs them. nil
// remembers none.
type lists struct {
	mu   sync.Mutex
	seen map[string]list   // by path
	same map[string]string // by path
}

type list struct {
	changed time.Time // of the directory
	names   []string
}

// settled is how long a directory must be unchanged for its list to be kept. The clocks of file systems have steps of up to
// 10 ms, so an earlier list may have the time of a later change.
const settled = time.Second

// names returns the names in a directory as they are now; none on an error.
func (l *lists) names(path string) []string {
	dir, err := openAt(path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	st, err := dir.Stat()
	if err != nil || l == nil {
		names, _ := dir.Readdirnames(-1)
		return names
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept, ok := l.seen[path]; ok && kept.changed.Equal(st.ModTime()) {
		return kept.names
	}
	delete(l.seen, path)
	names, err := dir.Readdirnames(-1)
	if err == nil && time.Since(st.ModTime()) > settled {
		if l.seen == nil {
			l.seen = map[string]list{}
		}
		l.seen[path] = list{st.ModTime(), names}
	}
	return names
}

// sameKey is the function of that name, whose result this process does not change.
func (l *lists) sameKey(path, sandboxRoot string) (string, error) {
	if l == nil {
		return sameKey(path, sandboxRoot)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if same := l.same[path]; same != "" {
		return same, nil
	}
	same, err := sameKey(path, sandboxRoot)
	if err == nil {
		if l.same == nil {
			l.same = map[string]string{}
		}
		l.same[path] = same
	}
	return same, err
}
