package runs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of the store. The oldest runs that have ended are removed first.
const (
	maxRuns  = 10000
	maxAge   = 7 * 24 * time.Hour
	maxBytes = 32 << 30 // of logs and artifacts
)

// entry is a run's directory.
type entry struct {
	job  string
	made time.Time
}

// newest returns the directories of all runs, the newest first. A run's time is when its job.json was last changed: at its
// start.
func (s *Store) newest() ([]entry, error) {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var all []entry
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), jobPrefix) {
			continue
		}
		if st, err := os.Lstat(filepath.Join(s.dir, n.Name(), "job.json")); err == nil {
			all = append(all, entry{n.Name(), st.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return b.made.Compare(a.made) })
	return all, nil
}

// evictEvery is the interval between two looks for runs to remove.
const evictEvery = 10 * time.Minute

// Evict removes runs that are too many or too old, until ctx ends. It ignores failures: the next look tries again.
func (s *Store) Evict(ctx context.Context) {
	for {
		s.evict(maxRuns, maxAge, maxBytes)
		select {
		case <-ctx.Done():
			return
		case <-time.After(evictEvery):
		}
	}
}

// evict removes the ended runs behind the newest most, those that ended before age, and those for which the others leave
// no space.
func (s *Store) evict(most int, age time.Duration, space int64) (removed int) {
	all, err := s.newest()
	if err != nil {
		return 0
	}
	for i, e := range all {
		space -= s.size(e.job)
		if i < most && time.Since(e.made) < age && space >= 0 {
			continue
		}
		j, err := s.jobs.Get(e.job)
		if err != nil || !j.Status.Over() || i < most && time.Since(j.Ended) < age && space >= 0 {
			continue
		}
		if os.RemoveAll(filepath.Join(s.dir, e.job)) == nil {
			removed++
		}
	}
	s.evictLatest()
	return removed
}

// evictLatest removes the names of removed runs.
func (s *Store) evictLatest() {
	dir := filepath.Join(s.dir, latestDir)
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.dir, string(b))); os.IsNotExist(err) {
			os.Remove(path)
		}
	}
}

// size returns the length of what a run has on disk. A file that several runs share counts for each.
func (s *Store) size(job string) (n int64) {
	if st, err := os.Lstat(filepath.Join(s.dir, job, "stdout.log")); err == nil {
		n = st.Size()
	}
	for _, a := range s.artifacts(job) {
		n += a.Size
	}
	return n
}
