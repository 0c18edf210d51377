package cow

import (
	"path/filepath"
	"slices"
	"strings"

	"demesne/rootfs/upper"
	"demesne/runner"
)

// Guards returns read-only mounts over the files in a writable mount that programs of the host would execute, as far as they
// exist. others are the mounts of the sandbox: one below m hides what m has there. found lists the files, for a review.
func Guards(m runner.Mount, others []runner.Mount) (mounts []runner.Mount, found *upper.Autorun, err error) {
	found, err = upper.FindAutorun(m.Source)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range found.Protected() {
		target := filepath.Join(m.Target, p)
		hidden := func(o runner.Mount) bool {
			return o.Target != m.Target && strings.HasPrefix(o.Target+"/", m.Target+"/") && strings.HasPrefix(target+"/", o.Target+"/")
		}
		if !slices.ContainsFunc(others, hidden) {
			mounts = append(mounts, runner.Mount{Source: filepath.Join(m.Source, p), Target: target, ReadOnly: true})
		}
	}
	return mounts, found, nil
}
