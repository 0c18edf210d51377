package pull

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"go.podman.io/storage/pkg/chunked/compressor"

	"demesne/images/oci"
)

// chunkedLayer is a layer as podman writes it.
type chunkedLayer struct {
	v1.Layer
	diffID v1.Hash
}

func (l chunkedLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// chunked returns an image with one layer of zstd:chunked, which has files of random content by seed, and the blob.
func chunked(t *testing.T, seeds []uint64, mend func(blob []byte, annotations map[string]string) []byte) (v1.Image, []byte) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i, seed := range seeds {
		content := make([]byte, 150<<10)
		random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
		random.Read(content)
		if i%3 == 2 {
			content = content[:700] // its frame is shorter than minRun
		}
		name := fmt.Sprintf("dir/file%d", i)
		if err := errors.Join(
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}),
			put(w, content),
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name + ".link", Linkname: name}),
		); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	diffID, _, err := v1.SHA256(bytes.NewReader(archive.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var blob bytes.Buffer
	annotations := map[string]string{}
	level := 3
	z, err := compressor.ZstdCompressor(&blob, annotations, &level)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(z, archive.Bytes()), z.Close()); err != nil {
		t.Fatal(err)
	}
	content := blob.Bytes()
	if mend != nil {
		content = mend(content, annotations)
	}
	layer := chunkedLayer{static.NewLayer(content, types.OCILayerZStd), diffID}
	img := mutate.ConfigMediaType(mutate.MediaType(anImage(t, runtime.GOARCH, 10, 1), types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, Annotations: annotations, MediaType: types.OCILayerZStd})
	if err != nil {
		t.Fatal(err)
	}
	return img, content
}

func put(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// TestChunked checks that a pull of a new tag fetches only what the store lacks, and gets every byte right in each case.
func TestChunked(t *testing.T) {
	var first, second []uint64
	for i := range uint64(60) {
		first, second = append(first, i), append(second, i)
	}
	second[7], second[31] = 100, 101
	second = append(second, 102)
	old, _ := chunked(t, first, nil)
	for _, test := range []struct {
		name        string
		mend        func([]byte, map[string]string) []byte
		front       func(http.ResponseWriter, *http.Request, http.Handler)
		least, most float64 // bytes fetched, of a blob's
	}{
		{"changed", nil, nil, 0, 0.15},
		{"no ranges", nil, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del("Range")
			next.ServeHTTP(w, r)
		}, 1, 2.1},
		{"ranges fail", nil, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.HasPrefix(r.Header.Get("Range"), "bytes=") && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
				http.Error(w, "no", http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		}, 1, 1.05},
		{"a table that lies", swapDigests, nil, 1.02, 1.2},
		{"no table", func(b []byte, a map[string]string) []byte {
			a[positionKey] = "10:1000:1000:1"
			return b
		}, nil, 1, 1.05},
		{"a table beyond the end", func(b []byte, a map[string]string) []byte {
			a[positionKey] = "9223372036854775000:1000:1000:1"
			return b
		}, nil, 1, 1.05},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRegistry(t)
			o := r.options(t)
			ctx := context.Background()
			if _, err := Image(ctx, r.push(t, "o/n:1", old), o); err != nil {
				t.Fatal(err)
			}
			img, blob := chunked(t, second, test.mend)
			ref := r.push(t, "o/n:2", img)
			r.behave(test.front)
			if test.front == nil {
				r.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
			}
			if _, err := Image(ctx, ref, o); err != nil {
				t.Fatal(err)
			}
			holds(t, o.Store, ref, img)
			_, n := r.count("GET", "/blobs/")
			if part := float64(n) / float64(len(blob)); part < test.least || part > test.most {
				t.Errorf("%.2f of the blob was fetched", part)
			}
		})
	}
}

// TestChunkedRepository checks that blobs of another repository are not used: the registry would learn about them.
func TestChunkedRepository(t *testing.T) {
	r := newRegistry(t)
	o := r.options(t)
	seeds := []uint64{1, 2, 3, 4, 5, 6}
	old, _ := chunked(t, seeds, nil)
	img, blob := chunked(t, append(seeds, 7), nil)
	if _, err := Image(context.Background(), r.push(t, "o/secret:1", old), o); err != nil {
		t.Fatal(err)
	}
	ref := r.push(t, "o/other:1", img)
	r.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	if _, n := r.count("GET", "/blobs/"); n < int64(len(blob)) {
		t.Errorf("only %d of %d bytes were fetched", n, len(blob))
	}
}

// swapDigests writes another table behind the blob, in which two files of equal length have each other's digest.
func swapDigests(blob []byte, annotations map[string]string) []byte {
	offset, length, ok := tablePosition(oci.Descriptor{Size: int64(len(blob)), Annotations: annotations})
	if !ok {
		panic("no table")
	}
	decoder, _ := zstd.NewReader(nil)
	raw, err := decoder.DecodeAll(blob[offset:offset+length], nil)
	if err != nil {
		panic(err)
	}
	var table map[string]any
	if err := json.Unmarshal(raw, &table); err != nil {
		panic(err)
	}
	swapped := map[any]map[string]any{} // by length in the blob
	for _, e := range table["entries"].([]any) {
		f := e.(map[string]any)
		if f["offset"] == nil || f["chunkDigest"] != nil || f["endOffset"].(float64)-f["offset"].(float64) < minRun {
			continue
		}
		n := f["endOffset"].(float64) - f["offset"].(float64)
		if other := swapped[n]; other != nil {
			f["digest"], other["digest"] = other["digest"], f["digest"]
			break
		}
		swapped[n] = f
	}
	raw, _ = json.Marshal(table)
	encoder, _ := zstd.NewWriter(nil)
	packed := encoder.EncodeAll(raw, nil)
	annotations[positionKey] = fmt.Sprintf("%d:%d:%d:1", len(blob)+8, len(packed), len(raw))
	frame := []byte{0x50, 0x2a, 0x4d, 0x18, byte(len(packed)), byte(len(packed) >> 8), byte(len(packed) >> 16), 0}
	return append(append(blob, frame...), packed...)
}

// FuzzTable checks that the parts of any table lie in the blob, in order.
func FuzzTable(f *testing.F) {
	f.Add(`[{"type":"reg","name":"a","size":3,"digest":"sha256:0","offset":10,"endOffset":20},{"type":"chunk","chunkDigest":"x","offset":15}]`)
	f.Add(`[{"offset":-1},{"offset":9223372036854775807,"endOffset":1}]`)
	f.Fuzz(func(t *testing.T, text string) {
		const size = 1000
		raw := []byte(`{"version":1,"entries":` + text + `}`)
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseTable(bytes.NewReader(encoder.EncodeAll(raw, nil)), size)
		if err != nil {
			return
		}
		last := int64(0)
		for _, one := range all {
			if one.offset != last || one.end < one.offset || one.end > size {
				t.Fatalf("part %d-%d after %d", one.offset, one.end, last)
			}
			last = one.end
		}
	})
}
