package executor

import (
	"maps"
	"path"
	"slices"

	"demesne/build/recipe"
	"demesne/runner"
)

// ownFile is a file that the runner makes in every tree.
const ownFile = "etc/apt/apt.conf.d/99demesne"

// ownFiles are all files that the runner writes into a tree, for the commands in it.
var ownFiles = []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/demesne-ca.pem", "/etc/demesne-ca.jks", "/" + ownFile}

// ownDirs are directories that the runner makes, or changes, in every tree: not steps of a build. They belong to root.
var ownDirs = map[string]int64{
	"etc": 0o755, "tmp": 0o1777, "workspace": 0o755, "run": 0o755,
	"etc/apt": 0o755, "etc/apt/apt.conf.d": 0o755, "root": 0o700,
}

// layerOptions exclude the runner's own files from a layer: one file, and directories in which the step made nothing else. With
// an epoch, no file is younger.
func (x *sandbox) layerOptions() runner.LayerOptions {
	o := runner.LayerOptions{Without: []string{ownFile}, Bare: ownDirs, NotAfter: x.Epoch}
	if x.mounts != nil && slices.Contains(x.mounts.targets(), recipe.BootstrapPath) {
		// This step makes a whole system, in which other engines expect the directories that the runner makes in every tree.
		o.Bare, o.Places = map[string]int64{"workspace": ownDirs["workspace"]}, true
	} else if x.mounts != nil {
		o.Bare = maps.Clone(ownDirs)
		for _, target := range x.mounts.targets() {
			for dir := path.Dir(target); dir != "/"; dir = path.Dir(dir) {
				o.Bare[dir[1:]] = 0o755
			}
		}
	}
	return o
}

// targets returns the mount points.
func (m *mounts) targets() (all []string) {
	for _, one := range m.list {
		all = append(all, one.Target)
	}
	for _, one := range m.tmpfs {
		all = append(all, one.Target)
	}
	return all
}
