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
// write what a later demesne obeys. A home with credentials is refused. A home that is no checkout has demesne's own files,
// which no sandbox gets.

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
