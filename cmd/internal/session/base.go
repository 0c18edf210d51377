package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/ipc"
)

// base is the root file system of a sandbox: an image, a directory, or the host's own tree. An image is found or
// pulled, and locked while a sandbox is made from it. It is unpacked when the runner lacks a copy for its user and
// group ids. Its user must release it.
type base struct {
	ref   imageref.Ref
	image *images.Image // nil unless ref's kind is kept in the store

	client   *images.Client
	hold     io.Closer
	progress func(events.Event)
}

// tries is how often findBase fetches an image that vanished before it was locked.
const tries = 5

// findBase resolves ref, and pulls the image if necessary. It does not unpack the image. store opens the image store,
// and is called only for an image.
func findBase(ctx context.Context, store func() (*images.Client, error), ref imageref.Ref, pull images.PullPolicy, progress func(events.Event)) (*base, error) {
	g := &base{ref: ref, progress: progress}
	switch ref.Kind {
	case imageref.Host, "":
		return g, nil
	case imageref.Directory:
		return g, g.checkDirectory()
	}
	var err error
	if g.client, err = store(); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		// A concurrent garbage collection may remove the image after it arrives and before it is locked.
		if err = g.take(ctx, pull); !errors.Is(err, images.ErrNotFound) || !fetchable(ref, pull) || n == tries {
			break
		}
	}
	return g, NamedImage(ref, err)
}

// fetchable reports whether findBase can fetch an image that is missing from the store.
func fetchable(ref imageref.Ref, policy images.PullPolicy) bool {
	return policy != images.PullNever && ref.Kind != imageref.Bare && ref.Kind != imageref.Pinned
}

// take fetches the image if necessary, and locks it against garbage collection.
func (g *base) take(ctx context.Context, policy images.PullPolicy) (err error) {
	if g.image, err = g.client.Ensure(ctx, g.ref, policy, g.progress); err != nil {
		return err
	}
	g.hold, err = g.client.Store.Hold(ctx, g.image.Digest)
	return err
}

// checkDirectory resolves symbolic links once, so that the path shown is the path used.
func (g *base) checkDirectory() error {
	real, err := filepath.EvalSymlinks(g.ref.Path)
	if err != nil {
		return fmt.Errorf("image %q: %w", g.ref.Given, fsutil.Reason(err))
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return fmt.Errorf("image %q: is not a directory", g.ref.Given)
	}
	g.ref.Path = real
	return nil
}

// fill sets the base in spec. A non-empty user replaces the image's own.
func (g *base) fill(spec *runner.Spec, user string) {
	spec.Image = g.ref.Given
	switch {
	case g.ref.Kind == imageref.Directory:
		spec.Rootfs = &runner.Rootfs{Dir: g.ref.Path, User: user}
	case g.image != nil:
		spec.Rootfs = g.rootfs(user)
	}
}

func (g *base) rootfs(user string) *runner.Rootfs {
	c := g.image.Config
	if user == "" {
		user = c.User
	}
	r := &runner.Rootfs{
		Digest: g.image.Digest.String(), Store: g.client.Store.Dir(),
		User: user, Env: slices.DeleteFunc(slices.Clone(c.Env), isNoVariable),
	}
	if c.WorkingDir != "" {
		r.WorkingDir = path.Join("/", c.WorkingDir)
	}
	for _, l := range g.image.Layers {
		r.Layers = append(r.Layers, l.DiffID.String())
	}
	return r
}

// isNoVariable reports whether s, from an image's environment, is not a valid environment variable.
func isNoVariable(s string) bool {
	return strings.Index(s, "=") <= 0 || strings.ContainsRune(s, 0)
}

// imageWord returns a canonical form of ref: it is equal for equal references, however they were written.
func imageWord(ref imageref.Ref) string {
	switch {
	case ref.Full != "":
		return ref.Full
	case ref.Path != "":
		return string(ref.Kind) + ":" + ref.Path
	}
	return ref.Given
}

// release unlocks the image; a sandbox made from it holds its own lock. g may be nil.
func (g *base) release() {
	if g != nil && g.hold != nil {
		g.hold.Close()
		g.hold = nil
	}
}

// make makes the sandbox through create. If the runner lacks an unpacked copy of the image, it unpacks the image and
// calls create again.
func (g *base) make(ctx context.Context, spec runner.Spec, create func(context.Context, runner.Spec) error) error {
	err := create(ctx, spec)
	var e *ipc.Error
	if g.image == nil || !errors.As(err, &e) || e.Code != ipc.CodeMissing {
		return err
	}
	if err := g.client.Unpack(ctx, g.image, g.progress); err != nil {
		return NamedImage(g.ref, err)
	}
	return create(ctx, spec)
}

// NamedImage adds the image's reference and the known names to an unknown-image error. It returns other errors
// unchanged.
func NamedImage(ref imageref.Ref, err error) error {
	var unknown *images.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	maybe := ""
	if unknown.Near != "" {
		maybe = fmt.Sprintf("did you mean %q? ", unknown.Near)
	}
	return &unknownError{fmt.Sprintf("image %q: unknown (%sknown: %s)", ref.Given, maybe, strings.Join(unknown.Known, ", ")), unknown}
}

// unknownError is an images.UnknownError whose text lists the known names.
type unknownError struct {
	text string
	*images.UnknownError
}

func (e *unknownError) Error() string { return e.text }
func (e *unknownError) Unwrap() error { return e.UnknownError }
