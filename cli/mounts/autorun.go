package mounts

import (
	"fmt"

	"demesne/cli/app"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/session/cow"
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
	mounts, found, err := cow.Guards(m, others)
	if err == nil {
		w.dirs = append(w.dirs, found)
	}
	return mounts, err
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
