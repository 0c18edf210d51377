// Package base provides the root file system of a sandbox. It is an image, a directory, or the host's own tree.
// An image is found or pulled, and locked while a sandbox is made from it. It is unpacked when the runner lacks
// a copy for its user and group ids.
//
//	g, err := base.Find(ctx, ref, base.Options{})
//	defer g.Release()
//	g.Fill(&spec, "")
//	s, err := base.Create(ctx, g, spec, client.Create)
//
// All programs that create sandboxes use it. It connects package images with package runner, which do not
// import each other.
package base

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
	"syscall"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/runner"
	"demesne/runner/ipc"
)

// Options configures Find. The zero value uses the environment's store, and pulls missing images.
type Options struct {
	Images   func() (*images.Client, error) // nil: [Images]
	Pull     images.PullPolicy
	Progress func(events.Event)
}

// Base is the base that Find returns. The caller must Release it.
type Base struct {
	Ref   imageref.Ref
	Image *images.Image // nil unless Ref's kind is kept in the store

	client   *images.Client
	hold     io.Closer
	progress func(events.Event)
}

// tries is how often Find fetches an image that vanished before it was locked.
const tries = 5

// Find resolves ref, and pulls the image if necessary. It does not unpack the image.
func Find(ctx context.Context, ref imageref.Ref, o Options) (*Base, error) {
	g := &Base{Ref: ref, progress: o.Progress}
	switch ref.Kind {
	case imageref.Host:
		return g, nil
	case imageref.Directory:
		return g, g.checkDirectory()
	}
	if o.Images == nil {
		o.Images = Images
	}
	var err error
	if g.client, err = o.Images(); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		// A concurrent garbage collection may remove the image after it arrives and before it is locked.
		if err = g.take(ctx, o.Pull); !errors.Is(err, images.ErrNotFound) || !fetchable(ref, o.Pull) || n == tries {
			break
		}
	}
	return g, Named(ref, err)
}

// fetchable reports whether Find can fetch an image that is missing from the store.
func fetchable(ref imageref.Ref, policy images.PullPolicy) bool {
	return policy != images.PullNever && ref.Kind != imageref.Bare && ref.Kind != imageref.Pinned
}

// take fetches the image if necessary, and locks it against garbage collection.
func (g *Base) take(ctx context.Context, policy images.PullPolicy) (err error) {
	if g.Image, err = g.client.Ensure(ctx, g.Ref, policy, g.progress); err != nil {
		return err
	}
	g.hold, err = g.client.Store.Hold(ctx, g.Image.Digest)
	return err
}

// checkDirectory resolves symbolic links once, so that the path shown is the path used.
func (g *Base) checkDirectory() error {
	real, err := filepath.EvalSymlinks(g.Ref.Path)
	if err != nil {
		return fmt.Errorf("image %q: %w", g.Ref.Given, reason(err))
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return fmt.Errorf("image %q: is not a directory", g.Ref.Given)
	}
	g.Ref.Path = real
	return nil
}

// Fill sets the base in spec. A non-empty user replaces the image's own.
func (g *Base) Fill(spec *runner.Spec, user string) {
	spec.Image = g.Ref.Given
	switch {
	case g.Ref.Kind == imageref.Directory:
		spec.Rootfs = &runner.Rootfs{Dir: g.Ref.Path, User: user}
	case g.Image != nil:
		spec.Rootfs = g.rootfs(user)
	}
}

func (g *Base) rootfs(user string) *runner.Rootfs {
	c := g.Image.Config
	if user == "" {
		user = c.User
	}
	r := &runner.Rootfs{
		Digest: g.Image.Digest.String(), Store: g.client.Store.Dir(),
		User: user, Env: slices.DeleteFunc(slices.Clone(c.Env), isNoVariable),
	}
	if c.WorkingDir != "" {
		r.WorkingDir = path.Join("/", c.WorkingDir)
	}
	for _, l := range g.Image.Layers {
		r.Layers = append(r.Layers, l.DiffID.String())
	}
	return r
}

// isNoVariable reports whether s, from an image's environment, is not a valid environment variable.
func isNoVariable(s string) bool {
	return strings.Index(s, "=") <= 0 || strings.ContainsRune(s, 0)
}

// Word returns a canonical form of ref: it is equal for equal references, however they were written.
func Word(ref imageref.Ref) string {
	switch {
	case ref.Full != "":
		return ref.Full
	case ref.Path != "":
		return string(ref.Kind) + ":" + ref.Path
	}
	return ref.Given
}

// Release unlocks the image; a sandbox made from it holds its own lock. g may be nil.
func (g *Base) Release() {
	if g != nil && g.hold != nil {
		g.hold.Close()
		g.hold = nil
	}
}

// Create makes the sandbox through create. If the runner lacks an unpacked copy of the image, Create unpacks it
// and calls create again.
func Create[S any](ctx context.Context, g *Base, spec runner.Spec, create func(context.Context, runner.Spec) (S, error)) (S, error) {
	s, err := create(ctx, spec)
	var e *ipc.Error
	if g.Image == nil || !errors.As(err, &e) || e.Code != ipc.CodeMissing {
		return s, err
	}
	if err := g.client.Unpack(ctx, g.Image, g.progress); err != nil {
		return s, Named(g.Ref, err)
	}
	return create(ctx, spec)
}

// Named adds the image's reference and the known names to an unknown-image error. It returns other errors
// unchanged.
func Named(ref imageref.Ref, err error) error {
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

// reason strips the operation and the path off a file system error: the caller prints the path as the user
// typed it.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
