package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner/container"
)

// Without a mount namespace, /in, /out and /workspace are the paths of the machine. Where they were prepared as
// links into one directory of the runner's user, one sandbox at a time has them:
//
//	mkdir -p DIR && ln -s DIR/in DIR/out DIR/workspace /
//
// The runner makes DIR/in, DIR/out and DIR/workspace links to the directories of the sandbox. A sandbox that does not get
// them has its variables only.

// errUnprepared means that the paths are not links into one directory.
var errUnprepared = errors.New("/in, /out and /workspace are not prepared")

// errPlacesTaken means that another sandbox has the paths.
var errPlacesTaken = errors.New("another sandbox has /in, /out and /workspace")

// takePlaces makes /in, /out and /workspace below root lead to the directories d. release ends that.
func takePlaces(root string, d container.Dirs) (release func(), err error) {
	shown := map[string]string{"in": d.In, "out": d.Out, "workspace": d.Workspace}
	dir := ""
	for name := range shown {
		to, err := os.Readlink(filepath.Join(root, name))
		if err != nil || !filepath.IsAbs(to) || filepath.Base(to) != name || dir != "" && dir != filepath.Dir(to) {
			return nil, errUnprepared
		}
		dir = filepath.Dir(to)
	}
	held, err := holdOwn(dir)
	if err != nil {
		return nil, err
	}
	release = func() {
		for name := range shown {
			unix.Unlinkat(int(held.Fd()), name, 0)
		}
		held.Close()
	}
	for name, to := range shown {
		err := unix.Unlinkat(int(held.Fd()), name, 0) // of a runner that was killed
		if err == nil || errors.Is(err, unix.ENOENT) {
			err = unix.Symlinkat(to, int(held.Fd()), name)
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("prepare /%s: %w", name, err)
		}
	}
	return release, nil
}

// holdOwn locks a directory that only the runner's user can write to.
func holdOwn(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("prepare /out: %w", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && (st.Mode&0o022 != 0 || st.Uid != uint32(os.Geteuid())) {
		err = fmt.Errorf("prepare /out: %q is not a directory of this user alone", dir)
	}
	if err == nil {
		if err = flock.Try(f, flock.Exclusive); errors.Is(err, flock.ErrLocked) {
			err = errPlacesTaken
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// shown returns the directories of a sandbox as its commands name them.
func (f *files) shown() container.Dirs {
	d := f.dirs
	if f.placed {
		d.In, d.Out, d.Workspace = inside.In, inside.Out, inside.Workspace
	}
	return d
}

// at returns where a directory of the sandbox is that a caller names as in every other sandbox.
func (f *files) at(dir string) string {
	d := f.shown()
	for from, to := range map[string]string{inside.In: d.In, inside.Out: d.Out, inside.Workspace: d.Workspace} {
		if rest, ok := strings.CutPrefix(dir, from); ok && (rest == "" || rest[0] == '/') {
			return to + rest
		}
	}
	return dir
}
