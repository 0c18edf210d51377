package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

const (
	featureFile    = "devcontainer-feature.json"
	maxFeatureFile = 1 << 20
	maxFeatureSize = 256 << 20 // bytes of all files
	maxFeatureLen  = 10_000    // files
)

// Feature makes an image of one layer from the archive of a dev container feature, a blob of the store, and names it. The
// image's label [oci.FeatureLabel] is the feature's own description, and from is the artifact's digest in the registry.
func Feature(ctx context.Context, store *images.Store, ref imageref.Ref, from, blob oci.Digest) (oci.Digest, error) {
	b, err := openBlob(ctx, store, blob)
	if err != nil {
		return "", err
	}
	defer b.Close()
	z, _, err := decompress(b)
	if err != nil {
		return "", &InvalidError{string(blob), err}
	}
	defer z.Close()
	out, in := io.Pipe()
	var text []byte
	checked := make(chan error, 1)
	go func() {
		var err error
		text, err = readFeature(out)
		out.CloseWithError(err)
		checked <- err
	}()
	bounded := &io.LimitedReader{R: z, N: maxFeatureSize + 1}
	l, err := AddLayer(ctx, store, io.TeeReader(fsutil.ContextReader(ctx, bounded), in), func() error {
		in.Close()
		if bounded.N == 0 {
			return fmt.Errorf("larger than %d bytes", maxFeatureSize)
		}
		return errors.Join(<-checked, b.verify())
	})
	in.CloseWithError(err)
	if err != nil {
		return "", &InvalidError{string(blob), err}
	}
	config, err := featureConfig(text, l.DiffID)
	if err != nil {
		return "", err
	}
	raw, err := put(ctx, store, config, typeConfig)
	if err != nil {
		return "", err
	}
	manifest, err := marshalManifest(raw, []oci.Descriptor{{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}})
	if err != nil {
		return "", err
	}
	m, err := put(ctx, store, manifest, oci.TypeOCIManifest)
	if err != nil {
		return "", err
	}
	_, err = store.Add(ctx, images.Record{Ref: ref, Manifest: m, Index: from})
	return m.Digest, err
}

// featureConfig returns the configuration of a feature's image.
func featureConfig(text []byte, layer oci.Digest) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Labels": map[string]string{oci.FeatureLabel: string(text)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []oci.Digest{layer}},
	})
}

// readFeature reads the archive to its end, and returns the feature's description.
func readFeature(r io.Reader) (text []byte, err error) {
	t := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && text == nil:
			return nil, fmt.Errorf("has no %s", featureFile)
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, r) // what follows the archive's end
			return text, err
		case err != nil:
			return nil, err
		case n >= maxFeatureLen:
			return nil, fmt.Errorf("more than %d files", maxFeatureLen)
		case path.Clean("/"+h.Name) != "/"+featureFile:
			continue
		case h.Typeflag != tar.TypeReg || h.Size > maxFeatureFile:
			return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", featureFile, maxFeatureFile)
		}
		if text, err = io.ReadAll(t); err != nil {
			return nil, err
		}
	}
}
