package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// disks are where overlayfs is tried, below a run directory: a runner of real root may write to the
// second only.
func disks(run string) []string {
	if run == "" {
		return nil
	}
	return []string{filepath.Join(run, "scratch"), filepath.Join(run, "state")}
}

// prefix is of what the runner with that key makes there.
func prefix(key string) string { return "." + key + ".probe-" }

// Left finds what the checks of a runner have not removed: they answer in time, whatever hangs, and
// a runner may be killed.
func Left(run, key string) (left []string) {
	for _, dir := range disks(run) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix(key)) {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	return left
}

// Remove removes one of what [Left] finds: a tree with overlayfs' work directory in it, which has mode 0.
func Remove(dir string) error {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
