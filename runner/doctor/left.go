package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// disks returns the directories below a run directory for the overlayfs test. A runner of real root may write
// only to the second.
func disks(run string) []string {
	if run == "" {
		return nil
	}
	return []string{filepath.Join(run, "scratch"), filepath.Join(run, "state")}
}

// prefix is the name prefix of the temporary directories of the runner with that key.
func prefix(key string) string { return "." + key + ".probe-" }

// Left lists the temporary directories that checks of a runner left behind. They remain if a probe hangs past
// the time limit or the runner is killed.
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

// Remove removes a directory that [Left] found. It contains overlayfs' work directory, which has mode 0.
func Remove(dir string) error {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
