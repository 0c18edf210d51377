package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/runner"
	"demesne/runner/ipc"
)

// A CI job may have HOME in its checkout. demesne then keeps its own files elsewhere (procself.OwnState), so that a sandbox
// can get the checkout. Three rules make this safe (F41). demesne's places in that home are covered: the sandbox cannot
// write what a later demesne obeys. A home with credentials is refused. A home that is not a checkout has demesne's own files,
// which no sandbox gets.

// ownPlaces are where a later demesne with this home looks for its files and its configuration.
var ownPlaces = []string{".demesne", ".config/demesne"}

// CoverHome makes writable mounts of a home directory that is a checkout possible. demesne's own places in it become
// read-only mount points, which the Spec must have too. It returns none for other mounts, and for those without a source.
func CoverHome(mounts ...runner.Mount) (covers []runner.Mount, err error) {
	home := os.Getenv("HOME")
	real, err := filepath.EvalSymlinks(home)
	if err != nil || !procself.Checkout(home) {
		return nil, nil
	}
	for _, m := range mounts {
		source, err := filepath.Abs(m.Source)
		if err == nil {
			source, err = filepath.EvalSymlinks(source)
		}
		if err != nil || source != real || m.Source == "" || m.ReadOnly {
			continue
		}
		for _, name := range ownPlaces {
			place := filepath.Join(real, name)
			if err := os.MkdirAll(place, 0o700); err != nil {
				return nil, fmt.Errorf("mount %q: make a mount point: %w", m.Source, fsutil.Reason(err))
			}
			covers = append(covers, runner.Mount{Source: place, Target: filepath.Join(m.Target, name), ReadOnly: true})
		}
	}
	return covers, nil
}

// covered lists the places in the source of a writable mount that the sandbox gets read-only: each is the source of a mount
// at that place. A mount point cannot be renamed or removed, nor can a directory above it. With nesting a sandbox could
// unmount it.
func covered(spec *runner.Spec, m *runner.Mount) (paths []string) {
	if m.ReadOnly || spec.Nesting {
		return nil
	}
	for _, o := range spec.Mounts {
		if rel, below := strings.CutPrefix(o.Source, m.Source+"/"); below && o.ReadOnly && o.Target == filepath.Join(m.Target, rel) {
			paths = append(paths, o.Source)
		}
	}
	return paths
}

// noCredentials refuses a source that contains the home directory if that is a checkout with credentials.
func noCredentials(real string) error {
	home, err := filepath.EvalSymlinks(os.Getenv("HOME"))
	if err != nil || !fsutil.Within(home, real) || !procself.Checkout(os.Getenv("HOME")) {
		return nil
	}
	if found := fsutil.CredentialsIn(home, true); len(found) > 0 {
		return &ipc.Error{
			Code: ipc.CodeInvalid,
			Text: fmt.Sprintf("%q contains the home directory, which has credentials: %q", real, found[0]),
			Hint: "set HOME to another directory, or remove the file",
		}
	}
	return nil
}
