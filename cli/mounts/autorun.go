package mounts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// Watch remembers the files of writable directories that programs of this machine would execute later.
type Watch struct {
	Verb string // begins each line
	dirs []*upper.Autorun
}

// Protect returns read-only mounts over the files in a writable mount that programs of this machine would execute, as
// far as they exist, and remembers all of them for tell. others are the mounts of the sandbox: one below m hides
// what m has there.
func (w *Watch) Protect(m runner.Mount, others []runner.Mount) (mounts []runner.Mount, err error) {
	found, err := upper.FindAutorun(m.Source)
	if err != nil {
		return nil, err
	}
	w.dirs = append(w.dirs, found)
	for _, p := range found.Protected() {
		target := filepath.Join(m.Target, p)
		hidden := func(o runner.Mount) bool {
			return o.Target != m.Target && strings.HasPrefix(o.Target+"/", m.Target+"/") && strings.HasPrefix(target+"/", o.Target+"/")
		}
		if !slices.ContainsFunc(others, hidden) {
			mounts = append(mounts, runner.Mount{Source: filepath.Join(m.Source, p), Target: target, ReadOnly: true})
		}
	}
	return mounts, nil
}

// Tell names the files that the sandbox left or changed, and that a program of this machine would execute.
func (w *Watch) Tell(c *app.Console) {
	for _, d := range w.dirs {
		lines, err := d.Review()
		if err != nil {
			c.Say(fmt.Sprintf("%s: %v", w.Verb, err))
		}
		for _, line := range lines {
			c.Say(w.Verb + ": " + line)
		}
	}
}
