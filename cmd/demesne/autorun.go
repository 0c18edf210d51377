package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/text"
	"demesne/rootfs/upper"
	"demesne/runner"
)

// watch remembers the files of writable directories that programs of this machine would execute later.
type watch struct {
	verb string // begins each line
	dirs []watched
}

// watched is one of these directories.
type watched struct {
	path   string
	before *upper.Autorun
}

// protect returns read-only mounts over the files in a writable mount that programs of this machine would execute, as
// far as they exist, and remembers all of them for tell. others are the mounts of the sandbox: one below m hides
// what m has there.
func (w *watch) protect(m runner.Mount, others []runner.Mount) (mounts []runner.Mount, err error) {
	found, err := findAutorun(m.Source)
	if err != nil {
		return nil, err
	}
	w.dirs = append(w.dirs, watched{m.Source, found})
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

func findAutorun(dir string) (*upper.Autorun, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return upper.FindAutorun(root)
}

// executableLines is how many files tell names.
const executableLines = 20

// tell names the files that the sandbox left or changed, and that a program of this machine would execute.
func (w *watch) tell(c *console) {
	for _, d := range w.dirs {
		now, err := findAutorun(d.path)
		if err != nil {
			c.say(fmt.Sprintf("%s: look for files that this machine would execute: %v", w.verb, err))
			continue
		}
		for i, f := range now.Since(d.before) {
			if i == executableLines {
				c.say(w.verb + ": and more such files; git status lists what changed")
				break
			}
			kind := "changed"
			if f.New {
				kind = "new"
			}
			c.say(fmt.Sprintf("%s: review before use: %s (%s), which %s would execute", w.verb, text.SafeLine(filepath.Join(d.path, f.Path)), kind, f.By))
		}
		if now.Truncated {
			c.say(fmt.Sprintf("%s: %s is too large to look at every file", w.verb, text.SafeLine(d.path)))
		}
	}
}
