package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// A Client pulls, imports, saves and sweeps images by starting demesne-images. An error that
// demesne-images reports is an [events.Failure].
type Client struct {
	Store   *Store
	Program string // path of demesne-images
	// Enter starts c in place of c.Start. The command runs without a network, as uid 0 of a user
	// namespace with the sandboxes' id map. c.Wait and c.Process must work afterwards. The command
	// must end when this process ends.
	Enter func(ctx context.Context, c *exec.Cmd) error

	// EnterPlain, if not nil, starts c in no namespace, as for sandboxes without one. [Client.Sweep] then removes what the id
	// map of Enter cannot.
	EnterPlain func(ctx context.Context, c *exec.Cmd) error

	// Unpacked, if not nil, reports whether a layer is unpacked. It saves starting a program that
	// would find nothing to do.
	Unpacked func(diffID oci.Digest) bool
	// Platform selects the image that Pull takes from an index, such as "linux/arm64". "" means this
	// machine's.
	Platform string
	// TLSVerify "false" allows plain HTTP and untrusted certificates; "" leaves that to registries.conf. AuthFile has
	// the credentials, in place of the usual files. Both are for Push, Login and Logout.
	TLSVerify, AuthFile string
	// NoFetch makes Unpack fail where it would have to fetch a dropped blob.
	NoFetch bool

	grace time.Duration // time for a program to end; 0: defaultGrace
}

// PullPolicy says when to ask a registry.
type PullPolicy string

// The pull policies. The empty policy means PullMissing.
const (
	PullMissing PullPolicy = "missing" // if the store has no image of that name
	PullAlways  PullPolicy = "always"  // always ask; the tag may have moved to another image
	PullNever   PullPolicy = "never"
)

// Ensure returns the image from the store, and pulls it first if the policy requires it. If it does
// not pull, it starts no process, and the image may still have to be unpacked. A local archive or
// layout is read again if it changed since the import.
func (c *Client) Ensure(ctx context.Context, ref imageref.Ref, policy PullPolicy, progress func(events.Event)) (*Image, error) {
	img, err := c.Store.Lookup(ref)
	switch {
	case policy == PullNever || ref.Kind == imageref.Pinned:
		return img, err
	case errors.Is(err, ErrNotFound) && ref.Kind == imageref.Bare:
		return nil, err
	case err != nil && !errors.Is(err, ErrNotFound) && (!errors.Is(err, ErrCorrupt) || errors.Is(err, errIndex)):
		return nil, err
	case err == nil && policy != PullAlways && c.Store.Whole(img) == nil && fresh(ref, img):
		return img, nil
	}
	return c.Pull(ctx, ref, progress)
}

// fresh reports whether a local file is unchanged since the image was read from it. It compares the
// ctime, which utimensat(2) cannot set back.
func fresh(ref imageref.Ref, img *Image) bool {
	if !ref.Local() {
		return true
	}
	path := ref.Path
	if ref.Kind == imageref.OCILayout {
		path = filepath.Join(path, indexFile)
	}
	st, err := os.Stat(path)
	if err != nil {
		return false
	}
	sys := st.Sys().(*syscall.Stat_t)
	return time.Unix(sys.Ctim.Unix()).Before(img.Pulled)
}

// Pull pulls an image into the store and unpacks it. Layers are unpacked while others are still being
// downloaded. If Pull fails, the layers already unpacked are kept. The image of a recipe is built instead, unless the
// store has it.
func (c *Client) Pull(ctx context.Context, ref imageref.Ref, progress func(events.Event)) (*Image, error) {
	if ref.Kind == imageref.Recipe {
		return c.make(ctx, ref, progress)
	}
	name, err := c.remote(ref)
	if err != nil {
		return nil, err
	}
	return c.pull(ctx, ref, progress, func(ctx context.Context, on func(events.Event)) (events.Event, error) {
		return c.run(ctx, job{args: c.pullArgs(name), on: on})
	})
}

// A Login is a user's name and password at a registry.
type Login struct{ User, Password string }

// PullPrivate pulls an image with a login, which nothing keeps, under the name as. The image has no other name, so that
// others cannot use it.
func (c *Client) PullPrivate(ctx context.Context, ref imageref.Ref, l Login, as imageref.Ref, progress func(events.Event)) (*Image, error) {
	return c.pull(ctx, ref, progress, func(ctx context.Context, on func(events.Event)) (events.Event, error) {
		args := c.pullArgs("--username", l.User, "--as", as.Given, ref.Given)
		return c.secretly(ctx, args, l.Password, on)
	})
}

// pull unpacks the layers that pull reports.
func (c *Client) pull(ctx context.Context, ref imageref.Ref, progress func(events.Event), pull func(context.Context, func(events.Event)) (events.Event, error)) (*Image, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := c.unpacker(ctx, cancel, progress)
	result, err := pull(ctx, u.pulled)
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		cancel(err) // stop unpacking: the layers are useless without the rest
		u.finish()
		return nil, fmt.Errorf("image %q: %w", ref, context.Cause(ctx))
	}
	img, err := c.unpackRest(ctx, result.Digest, u)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	return img, nil
}

func (c *Client) pullArgs(more ...string) []string {
	args := []string{"pull", "--store", c.Store.Dir()}
	if c.Platform != "" {
		args = append(args, "--platform", c.Platform)
	}
	return append(args, more...)
}

// remote returns the name to pass to demesne-images, or an error if the image cannot be pulled.
func (c *Client) remote(ref imageref.Ref) (string, error) {
	switch {
	case !ref.Stored():
		return "", fmt.Errorf("image %q: nothing to pull", ref)
	case ref.Kind == imageref.Pinned:
		return "", fmt.Errorf("image %q: a digest alone names no registry", ref)
	}
	_, err := c.Store.Lookup(ref)
	switch {
	case errors.Is(err, errIndex), errors.Is(err, ErrNotFound) && ref.Kind == imageref.Bare:
		return "", err
	case ref.Kind == imageref.Bare:
		return ref.Full, nil
	}
	return ref.Given, nil
}

// unpackRest unpacks the layers that the pull did not pass on, and waits until all layers are
// unpacked.
func (c *Client) unpackRest(ctx context.Context, d oci.Digest, u *unpacker) (*Image, error) {
	defer u.finish()
	img, err := c.Store.Lookup(imageref.Ref{Kind: imageref.Pinned, Given: string(d), Full: string(d)})
	if err != nil {
		return nil, err
	}
	used, err := c.Store.Hold(ctx, d)
	if err != nil {
		return nil, err
	}
	defer used.Close()
	if err := c.fetchDropped(ctx, img, u); err != nil {
		return nil, err
	}
	for _, l := range img.Layers {
		u.add(l)
	}
	return img, u.finish()
}

// fetchDropped fetches dropped blobs again if a layer that is not unpacked needs one.
func (c *Client) fetchDropped(ctx context.Context, img *Image, u *unpacker) error {
	for _, l := range img.Layers {
		if c.Store.Dropped(l.Digest) == nil || c.Unpacked != nil && c.Unpacked(l.DiffID) {
			continue
		}
		if c.NoFetch {
			return fmt.Errorf("layer %s: its blob was dropped, and may not be fetched again now", l.Digest)
		}
		_, err := c.run(ctx, job{args: []string{"fetch", "--store", c.Store.Dir(), string(img.Digest)}, on: u.pulled})
		return err
	}
	return nil
}

// Keep protects the layers' blobs of an image from removal until [Store.Close]. It fetches blobs that were dropped.
func (c *Client) Keep(ctx context.Context, img *Image, progress func(events.Event)) error {
	dropped, err := c.Store.Keep(ctx, img)
	if err == nil && len(dropped) > 0 {
		if c.NoFetch {
			return fmt.Errorf("layer %s: its blob was dropped, and may not be fetched again now", dropped[0].Digest)
		}
		if _, err := c.run(ctx, job{args: []string{"fetch", "--store", c.Store.Dir(), string(img.Digest)}, on: progress}); err != nil {
			return fmt.Errorf("fetch layers: %w", err)
		}
		dropped, err = c.Store.Keep(ctx, img)
	}
	if err == nil && len(dropped) > 0 { // gc dropped it again
		err = fmt.Errorf("layer %s: %w: it is missing", dropped[0].Digest, ErrCorrupt)
	}
	return err
}

// Unpack unpacks the layers of an image that are not unpacked yet.
func (c *Client) Unpack(ctx context.Context, img *Image, progress func(events.Event)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if _, err := c.unpackRest(ctx, img.Digest, c.unpacker(ctx, cancel, progress)); err != nil {
		return fmt.Errorf("unpack image %s: %w", img.Digest, err)
	}
	return nil
}
