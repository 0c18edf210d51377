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

// A Client brings images into its store, and what is not needed out, by starting demesne-images. Its
// errors that come from there are [events.Failure]s.
type Client struct {
	Store   *Store
	Program string // demesne-images
	// Enter starts a command, in place of its Start, as uid 0 of a user namespace with the id map
	// that sandboxes have, and without a network; Wait and Process work afterwards. The command
	// must end when we do.
	Enter func(ctx context.Context, c *exec.Cmd) error

	// Unpacked, if not nil, tells whether a layer is unpacked: it spares the start of a program
	// that would find nothing to do.
	Unpacked func(diffID oci.Digest) bool
	// Platform is whose image of an index Pull brings, as "linux/arm64"; "" is this machine's.
	Platform string

	grace time.Duration // for a program to end; 0: defaultGrace
}

// PullPolicy says when a registry is asked.
type PullPolicy string

// The pull policies. The empty one is PullMissing.
const (
	PullMissing PullPolicy = "missing" // when the store has no image of that name
	PullAlways  PullPolicy = "always"  // whether the tag points to another image by now
	PullNever   PullPolicy = "never"
)

// Ensure returns the image from the store, after a pull if the policy asks for one. Without a pull it
// starts no process, and the image may still have to be unpacked. An archive or layout of this
// machine is read again if it changed since.
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

// fresh says whether a file is what it was when the image was read from it: its inode has not
// changed since, which nobody can set back.
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

// Pull brings an image into the store and unpacks it. Layers are unpacked while others are still
// under way, and those that are unpacked stay so if it fails.
func (c *Client) Pull(ctx context.Context, ref imageref.Ref, progress func(events.Event)) (*Image, error) {
	name, err := c.remote(ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := c.unpacker(ctx, cancel, progress)
	result, err := c.run(ctx, job{args: c.pullArgs(name), on: u.pulled})
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		cancel(err) // of no use without the rest
		u.finish()
		return nil, fmt.Errorf("image %q: %w", ref, context.Cause(ctx))
	}
	img, err := c.unpackRest(ctx, result.Digest, u)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	return img, nil
}

func (c *Client) pullArgs(name string) []string {
	args := []string{"pull", "--store", c.Store.Dir()}
	if c.Platform != "" {
		args = append(args, "--platform", c.Platform)
	}
	return append(args, name)
}

// remote returns what demesne-images is to call the image, if it can be pulled at all.
func (c *Client) remote(ref imageref.Ref) (string, error) {
	switch {
	case !ref.Stored():
		return "", fmt.Errorf("image %q: there is nothing to pull", ref)
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

// unpackRest unpacks what the pull did not pass on, and waits for all of it.
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
	for _, l := range img.Layers {
		u.add(l)
	}
	return img, u.finish()
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
