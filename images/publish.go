package images

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// allLogins, in place of a registry, stands for all stored credentials.
const allLogins = "all"

// A Push says how an image is pushed.
type Push struct {
	Compression string // of layers: "gzip", "zstd" or "none"; "" keeps compressed layers, and gzips others
	Level       int    // of the compression; 0: the usual one
	SignBy      string // file of a sigstore private key; "": no signature
	Passphrase  string // of that key
}

// Push copies an image of the store to a registry. It returns the digest that the image has there.
func (c *Client) Push(ctx context.Context, ref, to imageref.Ref, o Push, progress func(events.Event)) (oci.Digest, error) {
	img, err := c.Store.Lookup(ref)
	if err != nil {
		return "", err
	}
	args := c.access("push")
	if o.Compression != "" {
		args = append(args, "--compression", o.Compression)
	}
	if o.Level != 0 {
		args = append(args, "--compression-level", strconv.Itoa(o.Level))
	}
	if o.SignBy != "" {
		args = append(args, "--sign-by", o.SignBy)
	}
	result, err := c.secretly(ctx, append(args, img.name(ref), to.Full), o.Passphrase, progress)
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		return "", fmt.Errorf("destination %q: %w", to, err)
	}
	return result.Digest, nil
}

// Login checks a password with a registry and stores it. It returns the place: a file, or the name of a helper. progress
// gets the notices.
func (c *Client) Login(ctx context.Context, registry, user, password string, progress func(events.Event)) (where string, err error) {
	result, err := c.secretly(ctx, append(c.access("login"), "--username", user, registry), password, progress)
	return result.Why, err
}

// Logout removes the stored credentials of a registry, or all of them if registry is "".
func (c *Client) Logout(ctx context.Context, registry string) error {
	_, err := c.run(ctx, job{args: append(c.access("logout"), cmp.Or(registry, allLogins))})
	return err
}

// access returns the arguments of a verb that talks to a registry.
func (c *Client) access(verb string) []string {
	args := []string{verb, "--store", c.Store.Dir()}
	if c.TLSVerify != "" {
		args = append(args, "--tls-verify", c.TLSVerify)
	}
	if c.AuthFile != "" {
		args = append(args, "--authfile", c.AuthFile)
	}
	return args
}

// Tag gives an image one more name. If the name pointed to another image, it now points to this one.
func (c *Client) Tag(ctx context.Context, from, name imageref.Ref) (*Image, error) {
	if name.Kind != imageref.Bare && (name.Kind != imageref.Registry || name.Digest() != "") {
		return nil, fmt.Errorf("tag image %q: not a valid name for an image", name)
	}
	s := c.Store
	img, err := s.Lookup(from)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.Digest == img.Digest })
		if i < 0 {
			return nil, false, ErrNotFound // another process removed it
		}
		entries, e := nameIn(entries, Record{Ref: name, Manifest: entries[i].Descriptor})
		img.Names = e.names
		return entries, true, s.touch(e.Digest)
	})
	if err != nil {
		return nil, fmt.Errorf("tag image %q: %w", from, err)
	}
	return img, nil
}

// secretly runs a job that reads a secret from its descriptor 3, which no other process can see.
func (c *Client) secretly(ctx context.Context, args []string, secret string, on func(events.Event)) (events.Event, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return events.Event{}, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer r.Close()
	go func() { // the program need not read it all
		defer w.Close()
		_, _ = w.WriteString(secret)
	}()
	return c.run(ctx, job{args: args, ins: []*os.File{r}, on: on})
}
