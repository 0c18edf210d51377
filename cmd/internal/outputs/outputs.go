// Package outputs removes unused output directories: what runs, jobs and sandboxes left below the output root.
//
//	lock, err := outputs.Hold(dir)        // a maker: it stays in use until the lock is closed
//	removed, err := outputs.Prune(outputs.Options{Root: root, Before: weekAgo, InUse: sandboxes})
//
// It recognises its own directories by the form of their names, and touches no others. A directory is in use
// while a process holds its lock (flock(2)) or a sandbox has it. Prune lists the directories first and the
// sandboxes afterwards, so a directory created in between is not a candidate. A directory's age is that of its
// last inode change (ctime), which no sandbox can set. The package follows no symbolic links.
package outputs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// forms are the names of output directories: of the CLI, of the MCP server, and of a sandbox's downloads. A d stands
// for a decimal digit, an x for a hexadecimal one, a v for the variant of a UUID (RFC 9562: 8, 9, a or b).
var forms = []string{"dddddddd-dddddd-xxxxxxxx", "xxxxxxxx-xxxx-4xxx-vxxx-xxxxxxxxxxxx", "xxxxxxxxxxxx"}

// isOutput reports whether name is that of an output directory.
func isOutput(name string) bool {
	return slices.ContainsFunc(forms, func(form string) bool { return hasForm(name, form) })
}

func hasForm(name, form string) bool {
	if len(name) != len(form) {
		return false
	}
	for i, c := range []byte(name) {
		allowed := form[i : i+1]
		switch form[i] {
		case 'd':
			allowed = "0123456789"
		case 'x':
			allowed = "0123456789abcdef"
		case 'v':
			allowed = "89ab"
		}
		if strings.IndexByte(allowed, c) < 0 {
			return false
		}
	}
	return true
}

// settle is how long a directory may stay empty before it counts as unused.
const settle = time.Minute

// Options configures Prune.
type Options struct {
	Root   string
	Before time.Time // remove what last changed before this; zero: only what is empty
	Most   int       // how many of the newest to keep; 0: any number
	// InUse lists the existing sandboxes. Prune calls it only if there are candidates for removal.
	InUse func() ([]runner.Info, error)
}

// Removed is the result of Prune.
type Removed struct {
	Dirs  int   `json:"outputs"`
	Bytes int64 `json:"bytes"`
}

// Hold marks a directory as in use until the returned file is closed.
func Hold(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold output directory: %w", err)
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := flock.Try(f, flock.Shared); err != nil {
		f.Close()
		return nil, fmt.Errorf("hold output directory: %w", err)
	}
	return f, nil
}

// RemoveEmpty removes the output directory of a sandbox that is gone. It does so only if dir is empty, lies
// directly in root, and has a name of the known form.
func RemoveEmpty(root, dir string) {
	if real, err := filepath.EvalSymlinks(root); err == nil && filepath.Dir(dir) == real && isOutput(filepath.Base(dir)) {
		unix.Rmdir(dir)
	}
}

// Prune removes directories that are not in use, and are empty, too old or too many.
func Prune(o Options) (done Removed, err error) {
	root, err := os.Open(o.Root)
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err == nil {
		defer root.Close()
		var list []candidate
		if list, err = o.candidates(root); err == nil && len(list) > 0 {
			done, err = o.remove(root, list)
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
// those over Most count as too many.
func (o Options) candidates(root *os.File) ([]candidate, error) {
	names, err := root.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, name := range names {
		if c, ok := look(root, name); ok {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.name, b.name)) })
	tooMany := 0
	if o.Most > 0 {
		tooMany = max(0, len(list)-o.Most)
	}
	var old []candidate
	for i, c := range list {
		if i < tooMany || c.changed.Before(o.Before) || c.empty && time.Since(c.changed) > settle {
			old = append(old, c)
		}
	}
	return old, nil
}

func look(root *os.File, name string) (c candidate, ok bool) {
	var st unix.Stat_t
	if !isOutput(name) || unix.Fstatat(int(root.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return c, false
	}
	dir, err := open(root, name)
	if err != nil {
		return c, false
	}
	defer dir.Close()
	some, _ := dir.Readdirnames(1)
	return candidate{name, time.Unix(st.Ctim.Unix()), len(some) == 0}, true
}

func open(root *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (o Options) remove(root *os.File, list []candidate) (done Removed, err error) {
	infos, err := o.InUse()
	if err != nil {
		return done, err
	}
	used := map[string]bool{}
	for _, i := range infos {
		used[i.ID], used[filepath.Base(i.Out)] = true, true
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

// removeOne removes a directory, unless another process holds its lock.
func removeOne(root *os.File, name string) (freed int64, err error) {
	dir, err := open(root, name)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if err := flock.Try(dir, flock.Exclusive); err != nil {
		return 0, err
	}
	return fsutil.RemoveAll(int(root.Fd()), name)
}
