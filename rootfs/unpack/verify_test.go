package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"demesne/rootfs/internal/nstest"
)

func zstded(t testing.TB, data []byte, o ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// TestMedia checks that a layer's first bytes select its decompression. Bytes after an archive, or after a gzip
// member, belong to the layer.
func TestMedia(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tar := archive(t, entry{name: "f", body: strings.Repeat("x", 3*chunkSize)})
	padded := append(slices.Clone(tar), make([]byte, 20<<10)...)
	noise := append(slices.Clone(tar), "this is no archive"...)
	half := len(tar) / 2
	for name, tt := range map[string]struct {
		blob, tar []byte
		media     string
		want      Reason
	}{
		"gzip":                {zipped(t, tar), tar, gzipType, ""},
		"zstd":                {zstded(t, tar), tar, "application/vnd.oci.image.layer.v1.tar+zstd", ""},
		"plain":               {tar, tar, "application/vnd.oci.image.layer.v1.tar", ""},
		"docker":              {zipped(t, tar), tar, "application/vnd.docker.image.rootfs.diff.tar.gzip", ""},
		"zstd called gzip":    {zstded(t, tar), tar, gzipType, ""},
		"plain called gzip":   {tar, tar, gzipType, ""},
		"two members":         {append(zipped(t, tar[:half]), zipped(t, tar[half:])...), tar, gzipType, ""},
		"two frames":          {append(zstded(t, tar[:half]), zstded(t, tar[half:])...), tar, gzipType, ""},
		"a skippable frame":   {append([]byte("\x50\x2a\x4d\x18\x04\x00\x00\x00skip"), zstded(t, tar)...), tar, gzipType, ""},
		"padding in the tar":  {zipped(t, padded), padded, gzipType, ""},
		"noise after the tar": {zipped(t, noise), noise, gzipType, ""},
		"padding after gzip":  {append(zipped(t, tar), make([]byte, 1000)...), tar, gzipType, ""},
		"hidden padding":      {zipped(t, padded), tar, gzipType, BadDiffID},
		"another archive":     {zipped(t, tar), noise, gzipType, BadDiffID},
		"empty":               {nil, nil, gzipType, ""},
		"no archive":          {bytes.Repeat([]byte("x"), 1024), nil, gzipType, BadTar},
		"cut tar":             {zipped(t, tar[:half]), tar[:half], gzipType, BadTar},
		"cut gzip":            {zipped(t, tar)[:200], tar, gzipType, BadTar},
		"no gzip":             {[]byte("\x1f\x8b\x08 but then not"), tar, gzipType, BadTar},
		"no zstd":             {[]byte("\x28\xb5\x2f\xfd but then not"), tar, gzipType, BadTar},
		"not a layer":         {zipped(t, tar), tar, "application/vnd.oci.image.config.v1+json", BadMedia},
		"a chart":             {zipped(t, tar), tar, "application/vnd.cncf.helm.chart.content.v1.tar+gzip", BadMedia},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			l := s.add(tt.blob, tt.tar)
			l.MediaType = tt.media
			err := s.run(t.Context(), l)
			if reasonOf(err) != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if tt.want != "" {
				s.untouched(0)
			}
		})
	}
}

// TestCorruptBlob checks that a blob that does not match its digest is distinguished from a dishonest image,
// whatever other error occurs.
func TestCorruptBlob(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tar := archive(t, entry{name: "f", body: strings.Repeat("x", 100<<10)})
	blob := zipped(t, tar)
	flipped := slices.Clone(blob)
	flipped[len(flipped)/2] ^= 1
	for name, now := range map[string][]byte{
		"a bit": flipped, "cut": blob[:100], "empty": nil, "longer": append(slices.Clone(blob), 0), "noise": []byte("noise"),
		"another": zipped(t, archive(t, entry{name: "../x"})),
	} {
		s := newStore(t)
		l := s.add(blob, tar)
		if err := os.WriteFile(s.blob(l.Digest), now, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := s.run(t.Context(), l); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
		s.untouched(0)
	}
	s := newStore(t)
	l := s.add(blob, tar)
	l.Size++
	if err := s.run(t.Context(), l); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of another size: got %v", err)
	}
	os.Remove(s.blob(l.Digest))
	if err := s.run(t.Context(), l); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not there: got %v", err)
	}
	s.untouched(0)
}

// TestBombs checks that a few bytes that expand to too many are refused, and take no memory.
func TestBombs(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	big := archive(t, entry{name: "f", body: strings.Repeat("\x00", 32<<20)})
	tail := append(archive(t, entry{name: "f"}), make([]byte, 32<<20)...)
	for name, tar := range map[string][]byte{"in a file": big, "after the archive": tail} {
		for kind, blob := range map[string][]byte{"gzip": zipped(t, tar), "zstd": zstded(t, tar)} {
			s := newStore(t)
			s.limits.Bytes = 16 << 20
			if err := s.run(t.Context(), s.add(blob, tar)); reasonOf(err) != TooBig {
				t.Errorf("%s %s: got %v", kind, name, err)
			}
			s.untouched(0)
		}
	}
	// A frame that asks for a window of 1 GiB.
	window := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0}, make([]byte, 100)...)
	s := newStore(t)
	if err := s.run(t.Context(), s.add(window, nil)); reasonOf(err) != BadTar {
		t.Errorf("window: got %v", err)
	}
}

// TestDense tests case F26: layers that unpack to far more than their size are refused long before the limit of a
// layer. That holds for a single layer and for all layers of an image together.
func TestDense(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	frame := func(blocks int) []byte { // a zstd frame of that many blocks of 128 KiB zeros
		b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3}
		for i := range blocks {
			head := 1<<1 | (128<<10)<<3
			if i == blocks-1 {
				head |= 1
			}
			b = append(b, byte(head), byte(head>>8), byte(head>>16), 0)
		}
		return b
	}
	layer := func(name string, size int64) []byte {
		var head bytes.Buffer
		if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, Format: tar.FormatPAX,
			PAXRecords: map[string]string{"comment": name}}); err != nil {
			t.Fatal(err)
		}
		return append(zstded(t, head.Bytes()), frame(int(size>>17)+1)...)
	}
	s := newStore(t)
	if err := s.run(t.Context(), s.add(layer("one", denseFree+64<<20), nil)); reasonOf(err) != TooDense {
		t.Errorf("one layer: %v", err)
	}
	s.untouched(0)
	var many []Layer
	for _, name := range []string{"a", "b", "c", "d"} { // each is small enough by itself
		many = append(many, s.add(layer(name, 400<<20), []byte(name)))
	}
	if err := s.run(t.Context(), many...); reasonOf(err) != BadDiffID && reasonOf(err) != TooDense {
		t.Errorf("many layers: %v", err)
	}
	s.untouched(0)
	u := &unpacker{Options: Options{Limits: Limits{}.withDefaults()}}
	u.spare.Store(denseFree)
	first, second := u.allow(&blob{}), u.allow(&blob{})
	if err := first(denseFree / 2); err != nil {
		t.Error(err)
	}
	if err := second(denseFree/2 + 1); reasonOf(err) != TooDense {
		t.Errorf("two layers together: %v", err)
	}
	if err := u.allow(&blob{read: 100 << 20})(denseRatio * 100 << 20); err != nil {
		t.Errorf("a large layer: %v", err)
	}
}

// TestRunEvents checks that each layer is unpacked once. A layer in the cache already, or named twice, is reported
// as present.
func TestRunEvents(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	var ls []Layer
	for _, name := range []string{"a", "b", "c"} {
		tar := archive(t, entry{name: name, body: strings.Repeat(name, 2*progress)})
		ls = append(ls, s.add(tar, tar))
	}
	if err := s.run(t.Context(), append(ls, ls[0])...); err != nil {
		t.Fatal(err)
	}
	done, present, last := 0, 0, map[digest.Digest]int64{}
	for _, e := range s.events {
		if e.Bytes < last[e.Layer.DiffID] && e.State == Unpacking {
			t.Errorf("progress of %s goes back to %d", e.Layer.DiffID, e.Bytes)
		}
		last[e.Layer.DiffID] = e.Bytes
		switch e.State {
		case Done:
			done++
		case Present:
			present++
		}
	}
	if done != 3 || present != 1 || len(s.events) < 3*3 {
		t.Errorf("%d done, %d present of %d events", done, present, len(s.events))
	}
	if err := s.run(t.Context(), ls...); err != nil || len(s.events) != 3 || s.events[0].State != Present {
		t.Errorf("again: %v, %v", s.events, err)
	}
	s.untouched(3)
}

// TestRunEnds checks that the first error ends the run, and that a cancelled run leaves nothing half done.
func TestRunEnds(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	tar := archive(t, entry{name: ".wh..."})
	in := make(chan Layer, 1)
	in <- s.add(tar, tar) // and the channel stays open
	err := Run(t.Context(), Options{Store: s.dir, Blobs: func(d digest.Digest) (*os.File, error) { return os.Open(s.blob(d)) }}, in, nil)
	if reasonOf(err) != badWhiteout {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	good := archive(t, entry{name: "f", body: strings.Repeat("f", 8<<20)})
	in <- s.add(good, good)
	err = Run(ctx, Options{Store: s.dir, Blobs: func(d digest.Digest) (*os.File, error) { return os.Open(s.blob(d)) }}, in,
		func(e Event) {
			if e.Bytes > 0 {
				cancel()
			}
		})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	s.untouched(0)
}
