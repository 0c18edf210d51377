package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/receipt"
)

// rootCaps are the capabilities of uid 0 of an image, and of no other user. Package managers need them for files
// and processes. They apply only to the sandbox's own ids (capable_wrt_inode_uidgid in the kernel), not to the
// network or mounts. CAP_SETFCAP is left out: a file capability in /out would outlive the sandbox.
var rootCaps = []uint{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID}

// rootCapNames are the names of rootCaps, for receipts and for libcontainer.
var rootCapNames = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

// layersMax is overlayfs's limit on lower layers.
const layersMax = 500

// admitRootfs rejects an invalid image. Only "host" has no Rootfs.
func admitRootfs(spec *runner.Spec) error {
	r := spec.Rootfs
	invalid := func(format string, a ...any) error {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: image %q: %w", spec.Image, fmt.Errorf(format, a...))
	}
	switch {
	case r == nil && spec.Image == "host":
		return nil
	case r == nil:
		return invalid("not known")
	case r.Dir != "" && len(r.Layers) > 0:
		return invalid("layers and a directory")
	case r.Dir != "" && !filepath.IsAbs(r.Dir), r.Dir == "" && !filepath.IsAbs(r.Store), r.Store != "" && !filepath.IsAbs(r.Store):
		return invalid("a path is not absolute")
	case len(r.Layers) > layersMax:
		return invalid("%d layers; overlayfs takes %d", len(r.Layers), layersMax)
	case r.WorkingDir != "" && !filepath.IsAbs(r.WorkingDir):
		return invalid("working directory %q: not absolute", r.WorkingDir)
	}
	for _, id := range r.Layers {
		if err := layers.DiffID(id).Validate(); err != nil {
			return invalid("layer %q: %w", id, err)
		}
	}
	return nil
}

// privileges returns the capabilities of a sandbox's commands, for its receipt.
func privileges(spec runner.Spec) (p receipt.Privileges) {
	if spec.Nesting {
		p.Set |= 1 << capSetfcap
		p.Words = append(p.Words, "CAP_SETFCAP (--nesting)")
	}
	if spec.Rootfs != nil {
		for _, c := range rootCaps {
			p.Set |= 1 << c
		}
		p.Words = append(p.Words, "uid 0 over the image's ids: "+strings.Join(rootCapNames, " "))
	}
	return p
}

// layerKey names the id mapping that layers must be unpacked under.
func layerKey(b api.Boot) string {
	extents := func(ranges []runner.IDRange) (m []layers.IDMap) {
		for _, r := range ranges {
			m = append(m, layers.IDMap(r))
		}
		return m
	}
	return layers.Key(extents(b.UIDMap), extents(b.GIDMap))
}

// ofImage is the state of a sandbox that has the tree of an image.
type ofImage struct {
	layers  []inode       // that a prepared sandbox was mounted on
	stacked time.Duration // time to open and mount its layers
	scratch string        // directory of the writes, if they go to a disk
	upper   *os.File      // scratch, opened
}

// mountImage mounts the tree of an image and locks its layers until the sandbox ends. A prepared sandbox locks them
// only until they are mounted.
func (s *sandbox) mountImage(l rootfs.Layout, m *ipc.Message) (*rootfs.Tree, error) {
	r, b := s.spec.Rootfs, s.e.boot
	cache := s.layerCache()
	image := rootfs.Image{
		WorkingDir: r.WorkingDir, User: r.User, UIDs: b.UIDs(), GIDs: b.GIDs(),
		Scratch: func() (string, error) { return s.newScratch(cache) },
	}
	if u := s.spec.User; u != nil {
		image.User = numeric(u)
	}
	if r.Dir != "" {
		image.Dir = source(m, api.SourceRootfs, r.Dir)
	} else {
		began := time.Now()
		held, err := s.hold(cache)
		if err != nil {
			return nil, err
		}
		defer held.CloseFS()
		if s.spare {
			defer held.Close()
			if s.image.layers, err = inodesOf(held.FS); err != nil {
				return nil, err
			}
		} else {
			used := s.use()
			s.undo.add(func() { held.Close(); used.Close() })
		}
		image.Lowers, s.image.stacked = held.FS, time.Since(began)
	}
	t, err := rootfs.MountImage(l, image)
	if err == nil {
		s.image.stacked += t.Stacked
	}
	switch {
	case errors.Is(err, rootfs.ErrNoUser):
		return nil, ipc.Errorf(ipc.CodeInvalid, "%w", err)
	case errors.Is(err, rootfs.ErrForeign):
		return nil, &ipc.Error{
			Code: ipc.CodeInvalid, Text: "use " + r.Dir + ": " + err.Error(),
			Hint: "demesne import " + r.Dir + " NAME, or chown -R it to your user and group",
		}
	}
	return t, err
}

// newScratch makes a directory beside the layers, as an unfinished layer. A sweep of the store removes it if the
// runner is killed.
func (s *sandbox) newScratch(cache layers.Cache) (string, error) {
	if s.spec.Rootfs.Store == "" {
		return "", errors.New("no image store")
	}
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	w, err := cache.Begin(ctx, layers.DiffID(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("scratch "+s.id)))))
	if err != nil {
		return "", err
	}
	s.undo.add(func() {
		if err := w.Abort(); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", s.id, err)
		}
	})
	s.image.scratch = w.Dir
	return w.Dir, nil
}

// explainInit explains a failure to execute PID 1 for lack of a dynamic loader. A demesne-init built by a plain go
// install may need one, and an image need not contain it.
func (s *sandbox) explainInit(err error) error {
	if s.spec.Rootfs == nil {
		return err
	}
	program, openErr := elf.Open(s.e.boot.Init)
	if openErr != nil {
		return err
	}
	defer program.Close()
	if !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return err
	}
	return &ipc.Error{
		Code: ipc.CodeInternal,
		Text: fmt.Sprintf("execute %q in an image: not statically linked: %v", s.e.boot.Init, err),
		Hint: "make build, or CGO_ENABLED=0 go install ./cmd/demesne-init",
	}
}

// watchScratch opens the directory of the writes for the disk watchdog.
func (s *sandbox) watchScratch() (err error) {
	if s.image.upper, err = os.Open(s.image.scratch); err != nil {
		return err
	}
	s.undo.add(func() { s.image.upper.Close() })
	return nil
}

func numeric(u *runner.User) string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// runsAs returns the account that a command runs as: asked, or the sandbox's user if asked is nil.
func (s *sandbox) runsAs(asked *runner.User) (rootfs.Account, error) {
	b := s.e.boot
	if asked != nil && (asked.UID >= b.UIDs() || asked.GID >= b.GIDs()) {
		return rootfs.Account{}, ipc.Errorf(ipc.CodeInvalid, "set user %d:%d: not in the id map", asked.UID, asked.GID)
	}
	if s.spec.Rootfs != nil {
		if asked == nil {
			return s.tree.Account, nil
		}
		return s.tree.Users.Lookup(numeric(asked))
	}
	u := cmp.Or(asked, s.spec.User, &runner.User{})
	a := rootfs.Account{User: rootfs.User(*u), Home: s.paths.home}
	if u.UID != 0 {
		a.Home = s.paths.workspace
	}
	return a, nil
}
