package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Controllers are the ones demesne sets limits with.
var Controllers = []string{"memory", "pids", "cpu"}

// prefix starts the name of every directory made outside a runner.
const prefix = "demesne-"

// Name is the directory of the runner called key.
func Name(key string) string { return prefix + key }

// Prepare makes, as real root, a group for the runner called key in every
// hierarchy that has one of [Controllers], and gives it to owner, the runner's
// user id out here. Version 1: below the caller's own group, whose limits so go on
// to hold. Version 2: at the top of the mount, because a group with processes in
// it cannot hand controllers down. dirs is what [Enter] and [Reap] take; an error
// beside them says what is missing, and the rest is still of use.
func Prepare(key string, owner int) (dirs []string, err error) {
	if key == "" || strings.ContainsAny(key, "/\x00") {
		return nil, fmt.Errorf("prepare cgroups: %q is no key", key)
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

// Planned lists what [Prepare] would make, so that somebody can be told to take it
// away before it is there.
func Planned(key string) (dirs []string) {
	self, err1 := Self()
	mounts, err2 := Mounts()
	if err1 != nil || err2 != nil {
		return nil
	}
	for _, p := range parents(self, mounts) {
		dirs = append(dirs, filepath.Join(p.path, Name(key)))
	}
	return dirs
}

// parent is where Prepare makes a directory.
type parent struct {
	path string
	v2   bool
}

// parents decides where: once per version 1 hierarchy with a controller of ours,
// and at the top of version 2 for the controllers that are in none of those.
func parents(self []Membership, mounts []Mount) []parent {
	var out []parent
	left := len(Controllers)
	for _, m := range self {
		if m.V2 || !overlap(m.Controllers, Controllers) {
			continue
		}
		if path, err := PathOf(m, mounts); err == nil {
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
			return "", fmt.Errorf("enable controllers of %q: it has none of %s to give", p.path, strings.Join(Controllers, ", "))
		}
	}
	if err := top.Remove(name); err != nil { // of a runner whose reaper was killed
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

// Enable hands the controllers that d has of [Controllers] down to its children,
// version 2's way, one by one, and returns those its children now have.
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

// Enter moves the runner into those of the prepared dirs that are version 2: only
// from inside may it later move its sandboxes about. Call it after the runner is
// forked and before it calls limits.Open.
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

// Reap removes prepared directories when the runner is gone, killing what is still
// inside. What is already gone is no error.
func Reap(dirs []string) error {
	var errs []error
	for _, path := range dirs {
		if !strings.HasPrefix(filepath.Base(path), prefix) {
			errs = append(errs, fmt.Errorf("reap cgroup %q: not made by demesne", path))
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
