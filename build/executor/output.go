package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner/tarball"
)

// Output is where the image is written to, in addition to the store.
type Output struct {
	kind string // one of outputs; empty: nowhere
	dest string // a file, or a directory with "local"; "-": stdout
}

// outputs are the kinds: two archives of images, the files as a tar, and the files in a directory.
var outputs = []string{"oci", "docker", "tar", "local"}

// ParseOutput parses --output: type=TYPE,dest=PATH; PATH alone is a directory, and - a tar on stdout.
func ParseOutput(word string) (o Output, err error) {
	switch {
	case word == "":
		return o, nil
	case word == "-":
		return Output{"tar", "-"}, nil
	case !strings.Contains(word, "="):
		return Output{"local", word}, nil
	}
	for part := range strings.SplitSeq(word, ",") {
		switch k, v, _ := strings.Cut(part, "="); k {
		case "type":
			o.kind = v
		case "dest":
			o.dest = v
		default:
			return o, fmt.Errorf("output %q: unknown field %q (type, dest)", word, k)
		}
	}
	switch {
	case o.kind == "registry":
		return o, text.Hinted(fmt.Errorf("output %q: a build does not push", word), "demesne push NAME, after demesne build -t NAME")
	case !slices.Contains(outputs, o.kind):
		return o, fmt.Errorf("output %q: unknown type %q (%s)", word, o.kind, strings.Join(outputs, ", "))
	case o.dest == "":
		return o, fmt.Errorf("output %q: no dest", word)
	case o.dest == "-" && o.kind == "local":
		return o, fmt.Errorf("output %q: stdout is not a directory", word)
	}
	return o, nil
}

// ToStdout reports whether the image is written to stdout.
func (o Output) ToStdout() bool { return o.dest == "-" }

// write writes an image.
func (b *Builder) write(ctx context.Context, d oci.Digest) error {
	ref := imageref.Ref{Kind: imageref.Pinned, Given: string(d), Full: string(d)}
	img, err := b.images.Store.Lookup(ref)
	if err != nil {
		return err
	}
	if len(b.Names) > 0 {
		ref = b.Names[0]
	}
	fill := func(to *os.File) error {
		if b.Output.kind == "tar" {
			return archive.Export(ctx, b.images.Store, img, to)
		}
		return archive.Save(ctx, b.images.Store, img, ref, b.Output.kind, to)
	}
	switch {
	case b.Output.kind == "local":
		return b.local(ctx, img)
	case b.Output.ToStdout():
		return fill(b.Stdout)
	}
	return images.ToFile(b.Output.dest, fill)
}

// local writes the files of an image to a directory, where they become the caller's. Names and links cannot leave it.
func (b *Builder) local(ctx context.Context, img *images.Image) error {
	if err := os.MkdirAll(b.Output.dest, 0o755); err != nil {
		return fmt.Errorf("write %q: %w", b.Output.dest, fsutil.Reason(err))
	}
	root, err := os.OpenRoot(b.Output.dest)
	if err != nil {
		return fmt.Errorf("write %q: %w", b.Output.dest, fsutil.Reason(err))
	}
	defer root.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive.Export(ctx, b.images.Store, img, w)) }()
	_, err = tarball.Unpack(r, root, tarball.Options{Links: true, Limits: tarball.Limits{Bytes: math.MaxInt64, Entries: math.MaxInt}})
	r.CloseWithError(errors.New("the copy has ended"))
	return err
}
