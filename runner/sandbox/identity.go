package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"demesne/runner"
	"demesne/runner/ipc"
)

// identity says which sandbox this is and what it was made from. Every part of a sandbox has it, to know what to make
// and where to push the cleanup of it.
//
// Nothing changes it after creation, except spec.Egress, which the sandbox's mu guards.
type identity struct {
	on       *Machine
	id       string
	spec     runner.Spec
	egress   *runner.Egress // with the fields that spec lacks; nil: no egress
	created  time.Time
	began    time.Time // start of the current run; later than created after a restart
	prepared bool      // made before its owner was known

	undo cleanup // has a lock of its own
	late cleanup // see undoLate
}

// ID returns the id.
func (i *identity) ID() string { return i.id }

// Spec returns the Spec. Only its Egress changes after creation: Info has a copy.
func (i *identity) Spec() *runner.Spec { return &i.spec }

// Prepared reports whether the sandbox was made before its owner was known.
func (i *identity) Prepared() bool { return i.prepared }

// undoLate adds steps that no result waits for: the slow unmounts of the runner's own view, and files that only the
// runner sees. With an image or a persistent sandbox they are not late, because others may wait for the disk.
func (i *identity) undoLate(f func()) {
	if i.spec.Rootfs == nil && i.spec.Lifetime == runner.OneShot {
		i.late.add(f)
		return
	}
	i.undo.add(f)
}

// NewID returns the id of a new sandbox.
func NewID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ValidName checks a sandbox name, which must also serve as a file name and as a shell word.
func ValidName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case name == "":
		return nil
	case len(name) > 64:
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: name is longer than 64 bytes")
	case strings.Trim(name, letters+"_.-") != "", strings.IndexAny(name[:1], letters) != 0:
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox %q: name may have letters, digits and _.-, the first a letter or digit", name)
	}
	return nil
}
