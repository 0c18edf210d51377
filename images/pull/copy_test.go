package pull

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"testing"

	"go.podman.io/image/v5/docker/reference"

	"demesne/images"
	"demesne/images/oci"
)

// thin is an archive that has other content for a blob, or none.
type thin struct {
	Source
	lacks oci.Digest
	other io.Reader // nil: no such file
}

func (s thin) Blob(ctx context.Context, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	switch {
	case d.Digest != s.lacks:
		return s.Source.Blob(ctx, d, offset)
	case s.other == nil:
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(s.other), nil
}

// TestCopyLacks (F40) checks that an archive gets no layer or configuration of the store only by its digest.
func TestCopyLacks(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 1000, 2))
	o := r.options(t)
	ctx := context.Background()
	if _, err := Image(ctx, ref, o); err != nil {
		t.Fatal(err)
	}
	img, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	named, err := reference.ParseNormalizedNamed(ref.Full)
	if err != nil {
		t.Fatal(err)
	}
	src, err := newPuller(o).dial(ctx, []reference.Named{named})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	raw, _, err := src.Unparsed(nil).Manifest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	size := int(img.Layers[0].Size)
	for what, s := range map[string]thin{
		"a layer":                    {src, img.Layers[0].Digest, nil},
		"another layer":              {src, img.Layers[1].Digest, nil},
		"the configuration":          {src, m.Config.Digest, nil},
		"the content":                {src, img.Layers[0].Digest, bytes.NewReader(make([]byte, size))},
		"the end":                    {src, img.Layers[0].Digest, bytes.NewReader(nil)},
		"an end: it has a byte more": {src, img.Layers[0].Digest, bytes.NewReader(make([]byte, size+1))},
	} {
		if _, err := Copy(ctx, s, parseRef(t, "mine"), o); err == nil {
			t.Errorf("an archive without %s was copied", what)
		}
		if _, err := o.Store.Lookup(parseRef(t, "mine")); !errors.Is(err, images.ErrNotFound) {
			t.Errorf("an archive without %s has a name: %v", what, err)
		}
	}
	if _, err := Copy(ctx, src, parseRef(t, "mine"), o); err != nil {
		t.Errorf("a whole one: %v", err)
	}
}
