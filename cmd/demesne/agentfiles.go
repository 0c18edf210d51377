package main

import (
	"fmt"
	"os"
	"path/filepath"

	"demesne/internal/text"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// watched is a directory of the project, with the files that programs of this machine would execute later.
type watched struct {
	path   string
	before *upper.Autorun
}

// protect returns read-only mounts over the files that programs of this machine would execute later, as far as they
// exist, and remembers all of them for [agentTerminal.tellExecutable].
func (t *agentTerminal) protect() (mounts []runner.Mount, err error) {
	for _, m := range t.project.mounts() {
		found, err := findAutorun(m.Source)
		if err != nil {
			return nil, err
		}
		t.watched = append(t.watched, watched{m.Source, found})
		for _, p := range found.Protected() {
			at := filepath.Join(m.Source, p)
			mounts = append(mounts, runner.Mount{Source: at, Target: at, ReadOnly: true})
		}
	}
	return mounts, nil
}

func findAutorun(dir string) (*upper.Autorun, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return upper.FindAutorun(root)
}

// executableLines is how many files tellExecutable names.
const executableLines = 20

// tellExecutable names the files that the session left or changed, and that a program of this machine would execute.
func (t *agentTerminal) tellExecutable() {
	for _, w := range t.watched {
		now, err := findAutorun(w.path)
		if err != nil {
			t.app.say(fmt.Sprintf("agent: look for files that this machine would execute: %v", err))
			continue
		}
		for i, f := range now.Since(w.before) {
			if i == executableLines {
				t.app.say("agent: and more such files; git status lists what changed")
				break
			}
			kind := "changed"
			if f.New {
				kind = "new"
			}
			t.app.say(fmt.Sprintf("agent: review before use: %s (%s), which %s would execute", text.SafeLine(filepath.Join(w.path, f.Path)), kind, f.By))
		}
		if now.Truncated {
			t.app.say(fmt.Sprintf("agent: %s is too large to look at every file", text.SafeLine(w.path)))
		}
	}
}
