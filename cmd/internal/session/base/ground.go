// Package ground brings what a sandbox stands on: an image, which is found or pulled, held
// while a sandbox is made of it, and unpacked when the runner's ids lack it; a directory; or
// the host's own tree, which needs nothing.
//
//	g, err := base.Find(ctx, ref, base.Options{})
//	defer g.Release()
//	g.Fill(&spec, "")
//	s, err := base.Create(ctx, g, spec, client.Create)
//
// It is what all programs that make sandboxes have in common, and where package images
// meets package runner: neither knows the other.
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

// Options say how an image is brought. The zero value is the store of the environment,
// and a pull of what is missing.
type Options struct {
	Images   func() (*images.Client, error) // nil: [Images]
	Pull     images.PullPolicy
	Progress func(events.Event)
}

// Ground is found. Whoever found it releases it.
type Ground struct {
	Ref   imageref.Ref
	Image *images.Image // nil unless Ref is of a kind that is stored

	client   *images.Client
	hold     io.Closer
	progress func(events.Event)
}

// tries is how often an image that vanished before it was held is fetched again.
const tries = 5

// Find finds what ref names, and fetches what is to be fetched. An image may have to be
// unpacked still.
func Find(ctx context.Context, ref imageref.Ref, o Options) (*Ground, error) {
	g := &Ground{Ref: ref, progress: o.Progress}
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
		// Whoever collects garbage may come between the image's arrival and its hold.
		if err = g.take(ctx, o.Pull); !errors.Is(err, images.ErrNotFound) || !fetchable(ref, o.Pull) || n == tries {
			break
		}
	}
	return g, Named(ref, err)
}

// fetchable says whether an image that is not in the store can be brought there.
func fetchable(ref imageref.Ref, policy images.PullPolicy) bool {
	return policy != images.PullNever && ref.Kind != imageref.Bare && ref.Kind != imageref.Pinned
}

// take fetches the image if need be, and holds it.
func (g *Ground) take(ctx context.Context, policy images.PullPolicy) (err error) {
	if g.Image, err = g.client.Ensure(ctx, g.Ref, policy, g.progress); err != nil {
		return err
	}
	g.hold, err = g.client.Store.Hold(ctx, g.Image.Digest)
	return err
}

// checkDirectory follows links once, so that what is shown and what is used are one.
func (g *Ground) checkDirectory() error {
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

// Fill says in spec what the sandbox stands on. user, if not empty, takes the place of the
// image's own.
func (g *Ground) Fill(spec *runner.Spec, user string) {
	spec.Image = g.Ref.Given
	switch {
	case g.Ref.Kind == imageref.Directory:
		spec.Rootfs = &runner.Rootfs{Dir: g.Ref.Path, User: user}
	case g.Image != nil:
		spec.Rootfs = g.rootfs(user)
	}
}

func (g *Ground) rootfs(user string) *runner.Rootfs {
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

// isNoVariable picks out what an image may have in its environment and no process can.
func isNoVariable(s string) bool {
	return strings.Index(s, "=") <= 0 || strings.ContainsRune(s, 0)
}

// Word is equal for equal references, however they were written.
func Word(ref imageref.Ref) string {
	switch {
	case ref.Full != "":
		return ref.Full
	case ref.Path != "":
		return string(ref.Kind) + ":" + ref.Path
	}
	return ref.Given
}

// Release lets go of the image; a sandbox on it holds it by then. It may be called on nil.
func (g *Ground) Release() {
	if g != nil && g.hold != nil {
		g.hold.Close()
		g.hold = nil
	}
}

// Create makes the sandbox, by create. What the runner's ids lack of the image is unpacked
// first.
func Create[S any](ctx context.Context, g *Ground, spec runner.Spec, create func(context.Context, runner.Spec) (S, error)) (S, error) {
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

// Named says which image err is about, unless it does so itself.
func Named(ref imageref.Ref, err error) error {
	var unknown *images.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	maybe := ""
	if unknown.Near != "" {
		maybe = fmt.Sprintf("did you mean %q? ", unknown.Near)
	}
	return &unknownError{fmt.Sprintf("image %q: not known (%sknown: %s)", ref.Given, maybe, strings.Join(unknown.Known, ", ")), unknown}
}

// unknownError is an images.UnknownError that says what is known.
type unknownError struct {
	text string
	*images.UnknownError
}

func (e *unknownError) Error() string { return e.text }
func (e *unknownError) Unwrap() error { return e.UnknownError }

// reason strips the operation and the path off a file system's error: the caller names the
// path as it was typed.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
