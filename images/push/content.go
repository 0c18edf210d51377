package push

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// Format is the compression of layers.
type Format string

// The formats. The empty one keeps the format of compressed layers, and stands for gzip for others.
const (
	Gzip Format = "gzip"
	Zstd Format = "zstd"
	None Format = "none"
)

// levels has the default and the highest level of each format.
var levels = map[Format]struct{ usual, most int }{Gzip: {5, 9}, "": {5, 9}, Zstd: {3, 22}, None: {}}

// level returns the level to use.
func (f Format) level(asked int) (int, error) {
	l, ok := levels[f]
	switch {
	case !ok:
		return 0, errorf(events.CodeInvalid, "compression %q: not gzip, zstd or none", string(f))
	case asked == 0:
		return l.usual, nil
	case l.most == 0:
		return 0, errorf(events.CodeInvalid, "compression level %d: there is no compression", asked)
	case asked < 1 || asked > l.most:
		return 0, errorf(events.CodeInvalid, "compression level %d: not 1 to %d", asked, l.most)
	}
	return asked, nil
}

// suffix returns the end of a layer's media type.
func (f Format) suffix() string {
	switch f {
	case Gzip:
		return gzipSuffix
	case Zstd:
		return zstdSuffix
	}
	return ""
}

// formatOf returns the format that a layer's media type states.
func formatOf(mediaType string) Format {
	switch {
	case strings.HasSuffix(mediaType, gzipSuffix), strings.HasSuffix(mediaType, oldGzipSuffix):
		return Gzip
	case strings.HasSuffix(mediaType, zstdSuffix), strings.HasSuffix(mediaType, oldZstdSuffix):
		return Zstd
	}
	return None
}

// content is a blob to send, in the form in which the registry gets it.
type content struct {
	layer oci.Digest // of the blob in the store, for events
	total int64      // bytes of that blob
	form  string     // how it differs from that blob: "" for not at all, or "gzip:5"
	made  bool       // it is made while it is sent, so its size and digest may not be known yet

	mu   sync.Mutex
	desc oci.Descriptor // Digest is "" until the blob was sent once

	// open returns the bytes from the start: the same ones each time. If they are made, the last Read fails if the
	// blob is damaged. moved is called with the number of bytes that were read of that blob.
	open func(ctx context.Context, moved func(int64)) (io.ReadCloser, error)
}

func (c *content) known() oci.Descriptor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.desc
}

func (c *content) learn(d oci.Digest, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.desc.Digest, c.desc.Size = d, size
}

// stored returns a blob of the store as it is. open is nil, or opens it in its place.
func (p *pusher) stored(d oci.Descriptor, open func(context.Context, func(int64)) (io.ReadCloser, error)) *content {
	if open == nil {
		// The upload compares the digest: no second hash is needed here.
		open = func(ctx context.Context, moved func(int64)) (io.ReadCloser, error) {
			return p.read(ctx, d.Digest, nil, moved)
		}
	}
	return &content{layer: d.Digest, total: d.Size, desc: d, open: open}
}

// content returns a layer in the format that the options ask for. Again means that the store's compressed form is damaged.
func (p *pusher) content(l oci.Layer, again bool) *content {
	d := oci.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}
	is, want := formatOf(l.MediaType), p.Format
	if want == "" {
		want = is
		if is == None {
			want = Gzip
		}
	}
	if is == want {
		return p.stored(d, nil)
	}
	c := &content{layer: l.Digest, total: l.Size, form: p.form(want), made: true, desc: oci.Descriptor{MediaType: typeLayer + want.suffix()}}
	c.open = func(ctx context.Context, moved func(int64)) (io.ReadCloser, error) {
		return p.converted(ctx, l, want, moved)
	}
	other, known, here := p.copies.Form(l.Digest, c.form)
	if known {
		c.desc.Digest, c.desc.Size = other.Digest, other.Size
	}
	if here && !again {
		c.made = false
		convert := c.open
		c.open = func(ctx context.Context, moved func(int64)) (io.ReadCloser, error) {
			scaled := func(n int64) { moved(int64(float64(n) / float64(max(other.Size, 1)) * float64(l.Size))) }
			r, err := p.read(ctx, other.Digest, nil, scaled)
			if errors.Is(err, fs.ErrNotExist) { // gc removed it
				return convert(ctx, moved)
			}
			return r, err
		}
	}
	return c
}

// form names a format and a level, as [images.Copy] does.
func (p *pusher) form(f Format) string { return fmt.Sprintf("%s:%d", f, p.Level) }

// Compress compresses the layers of an image that are not compressed, as a push does by default, and keeps the result for
// the next push. It leaves out those that a registry has already.
func Compress(ctx context.Context, store *images.Store, img *images.Image) error {
	p := newPusher(Options{Store: store, Level: levels[Gzip].usual})
	for _, l := range img.Layers {
		if _, known, _ := p.copies.Form(l.Digest, p.form(Gzip)); known || formatOf(l.MediaType) != None {
			continue
		}
		if err := p.keep(ctx, l); err != nil {
			return fmt.Errorf("compress layer %s: %w", l.Digest, err)
		}
	}
	return nil
}

func (p *pusher) keep(ctx context.Context, l oci.Layer) error {
	r, err := p.converted(ctx, l, Gzip, func(int64) {})
	if err != nil {
		return err
	}
	defer r.Close()
	return p.copies.Compressed(ctx, l.Digest, p.form(Gzip), r)
}

// read opens a blob of the store. With a hash its end is an error if the content does not have the digest.
func (p *pusher) read(ctx context.Context, d oci.Digest, h hash.Hash, moved func(int64)) (io.ReadCloser, error) {
	f, err := p.Store.Blob(d)
	if err != nil {
		return nil, err
	}
	return &reader{r: fsutil.ContextReader(ctx, f), Closer: f, hash: h, want: d, moved: moved}, nil
}

// reader counts what is read, and compares it with a digest.
type reader struct {
	r io.Reader
	io.Closer
	hash  hash.Hash // nil: no comparison
	want  oci.Digest
	n     int64
	moved func(int64)
}

func (v *reader) Read(b []byte) (int, error) {
	n, err := v.r.Read(b)
	v.n += int64(n)
	v.moved(v.n)
	if v.hash == nil {
		return n, err
	}
	v.hash.Write(b[:n])
	if errors.Is(err, io.EOF) && oci.DigestFrom(v.hash.Sum(nil)) != v.want {
		err = fmt.Errorf("read %s: %w: its content does not match its digest", v.want, images.ErrCorrupt)
	}
	return n, err
}

// blocks is the number of blocks that are compressed at once.
const blocks = 4

// block is the size of a block of gzip. It decides the compressed bytes, so it must not change.
const block = 1 << 20

// converted opens a layer, decompressed if necessary, and compresses it in other goroutines.
func (p *pusher) converted(ctx context.Context, l oci.Layer, to Format, moved func(int64)) (io.ReadCloser, error) {
	in, err := p.read(ctx, l.Digest, sha256.New(), moved)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	z, err := p.compressor(to, w)
	if err != nil {
		in.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer in.Close()
		err := convert(z, in, l)
		if errors.Is(err, io.ErrClosedPipe) {
			return
		}
		w.CloseWithError(err) // nil: the end
	}()
	return &piped{PipeReader: r, done: done}, nil
}

// piped ends the compressing goroutines when it is closed.
type piped struct {
	*io.PipeReader
	done chan struct{}
}

func (p *piped) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}

// convert compresses the content of a layer. It compares the decompressed content with the DiffID.
func convert(z io.WriteCloser, in io.Reader, l oci.Layer) error {
	plain, err := archive.Decompress(in)
	if err != nil {
		return errors.Join(err, z.Close())
	}
	defer plain.Close()
	var diff hash.Hash
	from := io.Reader(plain)
	if formatOf(l.MediaType) != None { // else the DiffID is the digest, which in compares
		diff = sha256.New()
		from = io.TeeReader(plain, diff)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{z}, from, make([]byte, block))
	if err == nil {
		_, err = io.Copy(io.Discard, in) // behind the end of the compressed stream
	}
	if err == nil && diff != nil && oci.DigestFrom(diff.Sum(nil)) != l.DiffID {
		err = fmt.Errorf("read %s: %w: its content does not match its DiffID", l.Digest, images.ErrCorrupt)
	}
	return errors.Join(err, z.Close())
}

func (p *pusher) compressor(to Format, w io.Writer) (io.WriteCloser, error) {
	switch to {
	case Gzip:
		z, err := pgzip.NewWriterLevel(w, p.Level)
		if err == nil {
			err = z.SetConcurrency(block, blocks)
		}
		return z, err
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(p.Level)), zstd.WithEncoderConcurrency(blocks))
	}
	return uncompressed{w}, nil
}

type uncompressed struct{ io.Writer }

func (uncompressed) Close() error { return nil }
