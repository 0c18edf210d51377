package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/jobs"
)

// emptyTime is how long a directory may stay empty before it counts as unused.
const emptyTime = time.Minute

// pruneOptions says which output directories are too old or too many.
type pruneOptions struct {
	before time.Time // remove what last changed before this; zero: only what is empty
	most   int       // how many of the newest to keep; 0: any number
}

// pruned is the result of PruneOutputs.
type pruned struct {
	Dirs  int   `json:"outputs"`
	Logs  int   `json:"logs"` // of connections
	Jobs  int   `json:"jobs"` // that ended
	Bytes int64 `json:"bytes"`
}

// PruneOutputs removes output directories that are not in use, and are empty or last changed before the given time. It
// recognizes them by the form of their names, and touches no others. A directory is in use while a process holds its
// lock (flock(2)) or a sandbox uses it. It lists the directories first and the sandboxes afterwards, so one created in
// between is not a candidate. A directory's age is the time since its last inode change (ctime), which no sandbox can set.
//
// All frontends share the output root, so it asks the runner as the command line, which sees every sandbox.
//
// It also removes what else did not change since the given time, unless that is zero: network logs that no sandbox uses,
// jobs that ended, and the manifests of removed directories.
func (s *Service) PruneOutputs(ctx context.Context, before time.Time) (pruned, error) {
	done, err := s.pruneOutputs(ctx, pruneOptions{before: before})
	if err != nil || before.IsZero() {
		return done, err
	}
	if done.Jobs, err = s.pruneJobs(before); err == nil {
		done.Logs, err = s.outputs.tidy(before)
	}
	return done, err
}

// pruneJobs removes the jobs that ended before a time, of all frontends. A job stays while its conversation goes on.
func (s *Service) pruneJobs(before time.Time) (removed int, err error) {
	dir, err := jobs.DefaultDir()
	if err != nil {
		return 0, err
	}
	if _, gone := os.Lstat(dir); gone != nil {
		return 0, nil
	}
	store, err := jobs.Open(dir)
	if err != nil {
		return 0, err
	}
	return store.Prune(before, s.ConversationOf)
}

// PruneMost removes output directories in the same way: the empty ones, and the oldest of more than the user may have.
func (s *Service) PruneMost(ctx context.Context) error {
	most, err := s.quota.outputs()
	if err == nil {
		_, err = s.pruneOutputs(ctx, pruneOptions{most: most})
	}
	return err
}

func (s *Service) pruneOutputs(ctx context.Context, o pruneOptions) (pruned, error) {
	root, err := s.outputs.root()
	if err != nil {
		return pruned{}, err
	}
	all := s.opts
	all.Runner.Frontend = runner.FrontendCLI
	cli := New(all)
	defer cli.Close()
	return pruneOutputs(root, o, func() (list []runner.Info, err error) {
		err = cli.With(ctx, func(e Engine) error { list, err = ListAll(ctx, e); return err })
		return list, err
	})
}

// retention is how long ended jobs and inactive logs are kept.
const retention = 7 * 24 * time.Hour

// Tidy removes ended jobs and egress logs that were not used for the time of retention, and the manifests and marks of
// removed output directories.
func (s *Service) Tidy() error {
	before := time.Now().Add(-retention)
	_, err := s.pruneJobs(before)
	if err == nil {
		_, err = s.outputs.tidy(before)
	}
	return err
}

// ListAll lists the sandboxes for a caller that removes what none of them uses. A sandbox whose record cannot be read is
// an error, because it may use anything.
func ListAll(ctx context.Context, e Engine) ([]runner.Info, error) {
	infos, err := e.List(ctx)
	for _, i := range infos {
		if i.State == runner.Unreadable {
			err = errors.Join(err, fmt.Errorf("nothing removed: the record of sandbox %q cannot be read, so what it uses is unknown", i.ID))
		}
	}
	return infos, err
}

func pruneOutputs(path string, o pruneOptions, inUse func() ([]runner.Info, error)) (done pruned, err error) {
	root, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err == nil {
		defer root.Close()
		var list []candidate
		if list, err = o.candidates(root); err == nil && len(list) > 0 {
			done, err = removeUnused(root, list, inUse)
		}
	}
	if err != nil {
		err = fmt.Errorf("prune outputs: %w", err)
	}
	return done, err
}

// candidate is a directory that may be removed.
type candidate struct {
	name    string
	changed time.Time
	empty   bool
}

// candidates returns the directories to remove unless they are in use, the oldest first. Only the oldest of
// those over most count as too many.
func (o pruneOptions) candidates(root *os.File) ([]candidate, error) {
	names, err := root.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, name := range names {
		if c, ok := examine(root, name); ok {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.name, b.name)) })
	tooMany := 0
	if o.most > 0 {
		tooMany = max(0, len(list)-o.most)
	}
	var old []candidate
	for i, c := range list {
		if i < tooMany || c.changed.Before(o.before) || c.empty && time.Since(c.changed) > emptyTime {
			old = append(old, c)
		}
	}
	return old, nil
}

func examine(root *os.File, name string) (c candidate, ok bool) {
	var st unix.Stat_t
	if !isOurs(name) || unix.Fstatat(int(root.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return c, false
	}
	dir, err := openDir(root, name)
	if err != nil {
		return c, false
	}
	defer dir.Close()
	some, _ := dir.Readdirnames(1)
	return candidate{name, time.Unix(st.Ctim.Unix()), len(some) == 0}, true
}

func openDir(root *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func removeUnused(root *os.File, list []candidate, inUse func() ([]runner.Info, error)) (done pruned, err error) {
	infos, err := inUse()
	if err != nil {
		return done, err
	}
	used := map[string]bool{}
	for _, i := range infos {
		used[i.ID], used[filepath.Base(i.Out)] = true, true
		if name, ours := directoryOf(i.Out); ours {
			used[name] = true
		}
	}
	for _, c := range list {
		if used[c.name] {
			continue
		}
		freed, one := removeOne(root, c.name)
		if errors.Is(one, unix.EWOULDBLOCK) || errors.Is(one, unix.ENOENT) {
			continue
		}
		if one == nil {
			done.Dirs++
		}
		done.Bytes += freed
		err = errors.Join(err, one)
	}
	return done, err
}

// directoryOf returns the last element of path that has the form of an output directory's name. Not every path ends in
// one: the /out of an agent's sandbox is a directory below it.
func directoryOf(path string) (name string, ours bool) {
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		if name = filepath.Base(path); isOurs(name) {
			return name, true
		}
	}
	return "", false
}

// removeOne removes a directory, unless another process holds its lock.
func removeOne(root *os.File, name string) (freed int64, err error) {
	dir, err := openDir(root, name)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if err := flock.Try(dir, flock.Exclusive); err != nil {
		return 0, err
	}
	return fsutil.RemoveAll(int(root.Fd()), name)
}
