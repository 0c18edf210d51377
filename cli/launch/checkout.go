package launch

import (
	"fmt"
	"os"
	"path/filepath"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/runner"
)

// ownPlaces are where a later demesne with this home looks for its files and its configuration.
var ownPlaces = []string{".demesne", ".config/demesne"}

// coverHome makes a writable mount of a home directory that is a checkout possible. demesne's own places in it become
// read-only mount points, so that the sandbox cannot write what a later demesne obeys.
func coverHome(m runner.Mount) (covers []runner.Mount, err error) {
	home := os.Getenv("HOME")
	real, err := filepath.EvalSymlinks(home)
	if err != nil || m.Source != real || m.ReadOnly || !procself.Checkout(home) {
		return nil, nil
	}
	for _, name := range ownPlaces {
		place := filepath.Join(real, name)
		if err := os.MkdirAll(place, 0o700); err != nil {
			return nil, fmt.Errorf("mount %q: make a mount point: %w", m.Source, fsutil.Reason(err))
		}
		covers = append(covers, runner.Mount{Source: place, Target: filepath.Join(m.Target, name), ReadOnly: true})
	}
	return covers, nil
}
