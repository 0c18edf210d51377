package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Controllers lists the controllers that demesne uses for limits.
var Controllers = []string{"memory", "pids", "cpu"}

// prefix starts the name of every directory made outside a runner.
const prefix = "demesne-"

// Leaf is the group in a runner's own that the runner moves to: a version 2 group that contains processes cannot delegate
// controllers.
const Leaf = prefix + "runner"

// Name returns the directory name of the runner called key.
func Name(key string) string { return prefix + key }

// Prepare makes a group for the runner called key in every hierarchy that has one of [Controllers]. It runs as
// real root and gives the groups to owner, the runner's user id in the initial user namespace. Version 1 groups
// are below the caller's own group, so its limits still apply. The version 2 group is at the top of the mount,
// because a group that contains processes cannot delegate controllers.
//
// [Enter] and [Reap] take dirs. An error returned together with dirs names the missing groups; the rest is
// usable.
func Prepare(key string, owner int) (dirs []string, err error) {
	if key == "" || strings.ContainsAny(key, "/\x00") {
		return nil, fmt.Errorf("prepare cgroups: %q is not a valid key", key)
	}
	self, err := Self()
	if err != nil {
		return nil, fmt.Errorf("prepare cgroups: %w", err)
	}
	mounts, err := Mounts()
	if err != nil {
		return nil, fmt.Errorf("prepare cgroups: %w", err)
	}
	var errs []error
	for _, p := range parents(self, mounts) {
		dir, err := prepareIn(p, Name(key), owner)
		if err != nil {
			errs = append(errs, fmt.Errorf("prepare cgroups: %w", err))
			continue
		}
		dirs = append(dirs, dir)
	}
	if len(dirs) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("prepare cgroups: no hierarchy is mounted that has memory, pids or cpu"))
	}
	return dirs, errors.Join(errs...)
}

// Planned lists the directories that are empty once a runner has ended, in the order of their removal: those that
// [Prepare] would make, each version 2 one after its [Leaf]. So their cleanup can be arranged before they exist.
func Planned(key string) (dirs []string) {
	self, err1 := Self()
	mounts, err2 := Mounts()
	if err1 != nil || err2 != nil {
		return nil
	}
	for _, p := range parents(self, mounts) {
		dir := filepath.Join(p.path, Name(key))
		if p.v2 {
			dirs = append(dirs, filepath.Join(dir, Leaf))
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// parent is a directory in which Prepare makes a group.
type parent struct {
	path string
	v2   bool
}

// parents returns one directory per version 1 hierarchy that has one of [Controllers]. It adds the top of
// version 2 if some controllers are in no version 1 hierarchy.
func parents(self []Membership, mounts []Mount) []parent {
	var out []parent
	left := len(Controllers)
	for _, m := range self {
		if m.V2 || !overlap(m.Controllers, Controllers) {
			continue
		}
		if path, err := pathOf(m, mounts); err == nil {
			out = append(out, parent{path: path})
		}
		for _, c := range Controllers {
			if m.Has(c) {
				left--
			}
		}
	}
	if i := slices.IndexFunc(mounts, func(m Mount) bool { return m.V2 }); i >= 0 && left > 0 {
		out = append(out, parent{path: mounts[i].Point, v2: true})
	}
	return out
}

func prepareIn(p parent, name string, owner int) (string, error) {
	top, err := Open(p.path)
	if err != nil {
		return "", err
	}
	defer top.Close()
	if p.v2 {
		if got := top.Enable(); len(got) == 0 {
			return "", fmt.Errorf("enable controllers of %q: none of %s is available", p.path, strings.Join(Controllers, ", "))
		}
	}
	if err := top.Remove(name); err != nil { // left by a runner whose reaper was killed
		return "", err
	}
	dir, err := top.Make(name)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	files := []string{"cgroup.procs", "tasks"}
	if p.v2 {
		files = []string{"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"}
	}
	if err := dir.Chown(owner, files...); err != nil {
		return "", errors.Join(err, top.Remove(name))
	}
	return filepath.Join(p.path, name), nil
}

// Enable delegates the available [Controllers] of d to its children, one by one (version 2). It returns the
// controllers that the children now have.
func (d *Dir) Enable() []string {
	have, _ := d.Read("cgroup.controllers")
	var on []string
	for _, c := range Controllers {
		if slices.Contains(strings.Fields(have), c) && d.Write("cgroup.subtree_control", "+"+c) == nil {
			on = append(on, c)
		}
	}
	return on
}

// Enter moves the runner into the version 2 groups among dirs. The runner's children then start in its group,
// and delegation lets the runner move them only within that subtree. Call Enter after the fork of the runner
// and before the runner calls limits.Open.
func Enter(dirs []string, pid int) error {
	var errs []error
	for _, path := range dirs {
		if _, err := os.Lstat(filepath.Join(path, "cgroup.subtree_control")); err != nil {
			continue
		}
		d, err := Open(path)
		if err == nil {
			err = d.Join(pid)
			d.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("enter cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Reap removes prepared directories after the runner has exited, and kills the processes that remain. It
// ignores missing directories.
func Reap(dirs []string) error {
	var errs []error
	for _, path := range dirs {
		if !strings.HasPrefix(filepath.Base(path), prefix) {
			errs = append(errs, fmt.Errorf("reap cgroup %q: not created by demesne", path))
			continue
		}
		top, err := Open(filepath.Dir(path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = top.Remove(filepath.Base(path))
			top.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reap: %w", err))
		}
	}
	return errors.Join(errs...)
}
