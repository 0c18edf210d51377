package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"demesne/rootfs"
	"demesne/rootfs/wrote"
	"demesne/runner/userns"
)

// shared is what a sandbox shares with its caller, through its own mounts.
type shared struct {
	out      *os.File     // /out
	work     *os.File     // /workspace, if it is the caller's
	takeBack func() error // lets /out be the caller's alone again; nil: it is
}

// openShared opens what the sandbox shares with its caller, for the watch and for the end.
func (s *sandbox) openShared() (err error) {
	if s.shared.out, err = os.Open(filepath.Join(s.tree.Root, "out")); err != nil {
		return err
	}
	s.lendOut()
	if s.spec.Workspace != "" {
		s.shared.work, err = os.Open(filepath.Join(s.tree.Root, "workspace"))
	}
	return err
}

// lendOut lets a user that is not uid 0 write to /out, if that can be. The files of real
// root's sandboxes are on the host what they are inside, so a directory that others can
// reach is not lent to one of them.
func (s *sandbox) lendOut() {
	who, err := s.runsAs(nil)
	if err != nil || who.UID == 0 || s.spec.Exposed && s.e.boot.Mode == userns.ModeRoot {
		return
	}
	// On an error the command will be told.
	s.shared.takeBack, _ = rootfs.Lend(s.shared.out, who.User)
}

// giveBack makes /out and /workspace the caller's: no process of the sandbox is alive any more.
func (s *sandbox) giveBack() {
	if err := s.shared.giveBack(s.began, s.spec.Rootfs != nil); err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
	}
}

// giveBack closes what there is. Only an image has a uid 0 that can make another user's of what
// is in /workspace.
func (h *shared) giveBack(since time.Time, image bool) error {
	var errs []error
	if h.work != nil {
		if image {
			errs = append(errs, wrote.Settle(h.work, since))
		}
		h.work.Close()
	}
	if h.out == nil {
		return errors.Join(errs...)
	}
	if h.takeBack != nil {
		errs = append(errs, h.takeBack())
	}
	errs = append(errs, wrote.Settle(h.out, since))
	h.out.Close()
	return errors.Join(errs...)
}
