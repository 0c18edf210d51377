package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Sweep removes an unpacked layer if no image of the store has it, no sandbox has mounted it and keep does not
// contain it. It returns the number of bytes freed, and the directories of id maps whose layers it could not remove. Call
// it after [Store.Remove] or [Store.GC].
func (c *Client) Sweep(ctx context.Context, keep []oci.Digest) (freed int64, left []string, err error) {
	all, err := c.Store.DiffIDs()
	if err != nil {
		return 0, nil, fmt.Errorf("sweep layers: %w", err)
	}
	keep = append(all, keep...)
	if freed, left, err = c.sweep(ctx, keep); err != nil || len(left) == 0 || c.EnterPlain == nil {
		return freed, left, err
	}
	plain := *c
	plain.Enter = c.EnterPlain
	if n, rest, err := plain.sweep(ctx, keep); err == nil {
		freed, left = freed+n, rest
	}
	return freed, left, nil
}

func (c *Client) sweep(ctx context.Context, keep []oci.Digest) (freed int64, left []string, err error) {
	lines := make(chan string, len(keep))
	for _, id := range keep {
		lines <- string(id)
	}
	close(lines)
	result, err := c.run(ctx, job{args: []string{"sweep", "--store", c.Store.Dir()}, enter: true, lines: lines})
	if err == nil && result.Event == "" {
		err = errNoResult
	}
	if err != nil {
		return 0, nil, fmt.Errorf("sweep layers: %w", err)
	}
	return result.Freed, result.Left, nil
}

// Import makes an image from a root file system, given as a tar file or a directory. It also loads an archive in the
// format of `docker save`.
func (c *Client) Import(ctx context.Context, src string, name imageref.Ref, progress func(events.Event)) (*Image, error) {
	if name.Kind != imageref.Bare && (name.Kind != imageref.Registry || name.Digest() != "") {
		return nil, fmt.Errorf("import image %q: not a valid name for an image", name)
	}
	abs, err := filepath.Abs(src)
	if err != nil {
		return nil, fmt.Errorf("import %q: %w", src, err)
	}
	result, err := c.run(ctx, job{args: []string{"import", "--store", c.Store.Dir(), abs, name.Full}, on: progress})
	if err == nil && result.Digest == "" {
		err = errNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("import %q: %w", src, err)
	}
	return c.Store.Lookup(imageref.Ref{Kind: imageref.Pinned, Given: string(result.Digest), Full: string(result.Digest)})
}

// Save writes an image of the store as an archive to out, which may be a pipe. The format is "oci" or "docker".
func (c *Client) Save(ctx context.Context, ref imageref.Ref, out *os.File, format string, progress func(events.Event)) error {
	return c.stream(ctx, "save", ref, out, progress, "--format", format)
}

// Export writes the root file system of an image of the store as one tar archive.
func (c *Client) Export(ctx context.Context, ref imageref.Ref, out *os.File, progress func(events.Event)) error {
	return c.stream(ctx, "export", ref, out, progress)
}

// stream copies to out what demesne-images writes to its descriptor 3. That descriptor is a pipe and not out itself:
// demesne-images opens it by name, which would truncate a file and fails for a socket.
func (c *Client) stream(ctx context.Context, verb string, ref imageref.Ref, out *os.File, progress func(events.Event), flags ...string) error {
	img, err := c.Store.Lookup(ref)
	if err != nil {
		return err
	}
	used, err := c.Store.Hold(ctx, img.Digest)
	if err != nil {
		return err
	}
	defer used.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("%s image %q: %w", verb, ref, err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if _, err := io.Copy(out, r); err != nil {
			cancel(err) // drain the pipe until the program stops
			_, _ = io.Copy(io.Discard, r)
		}
	}()
	args := append([]string{verb, "--store", c.Store.Dir()}, flags...)
	_, err = c.run(ctx, job{args: append(args, img.name(ref), outPath), out: w, on: progress})
	w.Close()
	<-copied
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s image %q: %w", verb, ref, err)
	}
	return nil
}

// name returns the name to pass to demesne-images: the full name if ref has one, else the digest.
func (img *Image) name(ref imageref.Ref) string {
	if ref.Kind == imageref.Pinned {
		return string(img.Digest)
	}
	return ref.Full
}

// ToFile calls write with a temporary file and renames it to path when it is complete. The file is readable by its
// owner only. A pipe or device at path is written to directly.
func ToFile(path string, write func(*os.File) error) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("write %q: %w", path, err)
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %q: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
