package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// TestFeatureBounds checks that the archive of a feature that a registry sent cannot fill the disk: neither by its size, nor
// by zeros that were compressed.
func TestFeatureBounds(t *testing.T) {
	store, err := images.Open(t.TempDir() + "/store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + featureFile, Mode: 0o644, Size: 2}), second(io.WriteString(w, "{}")),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: maxFeatureSize}), second(io.CopyN(w, zeros{}, maxFeatureSize)), w.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	blob, _, err := store.Put(context.Background(), &b, oci.MaxBlob)
	if err != nil {
		t.Fatal(err)
	}
	ref := imageref.Ref{Kind: imageref.Registry, Given: "r.test/f:1", Full: "r.test/f:1"}
	if _, err := Feature(context.Background(), store, ref, blob, blob); err == nil || !strings.Contains(err.Error(), "larger than 268435456 bytes") {
		t.Error(err)
	}
	if all, err := store.List(); err != nil || len(all) > 0 {
		t.Errorf("%v, images %v", err, all)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func second[T any](_ T, err error) error { return err }
