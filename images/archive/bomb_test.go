package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"demesne/images/imageref"
)

// zeroFrame returns a zstd frame of n blocks, each 128 KiB of zeros. It needs four bytes for a block; an encoder
// needs twenty.
func zeroFrame(n int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3} // no options, a window of 128 KiB
	for i := range n {
		head := 1<<1 | (128<<10)<<3 // a block that repeats one byte
		if i == n-1 {
			head |= 1
		}
		b = append(b, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return b
}

// bomb returns a tar of one file of zeros and some other files, as 25 KB of zstd.
func bomb(t *testing.T, name string, others ...file) []byte {
	t.Helper()
	const blocks = 6_000 // 750 MiB, where denseFree is 512
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: blocks * 128 << 10}); err != nil {
		t.Fatal(err)
	}
	b := append(encoder.EncodeAll(head.Bytes(), nil), zeroFrame(blocks)...)
	b = append(b, encoder.EncodeAll(aTar(t, others...), nil)...)
	if len(b) > 25_000 {
		t.Fatalf("the bomb has %d bytes", len(b))
	}
	return b
}

// TestBomb (F26) checks that every reader refuses an archive that decompresses to far more than its size, and leaves nothing behind.
func TestBomb(t *testing.T) {
	layer := aTar(t, file{name: "hello", text: "hi"})
	long := strings.Repeat("ab", 32)
	for name, b := range map[string][]byte{
		"a root file system": bomb(t, "zeros"),
		"docker-archive":     bomb(t, long+".json", file{name: long + ".tar", text: string(layer)}, file{name: manifestFile, text: "[]"}),
		"oci-archive":        bomb(t, "blobs/sha256/"+long, file{name: layoutFile, text: layoutText}, file{name: indexFile, text: "{}"}),
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			path, temp := write(t, b), t.TempDir()
			if _, err := Recognize(path); name != "a root file system" && !errors.Is(err, ErrDense) {
				t.Errorf("recognized: %v", err)
			}
			if _, err := Import(context.Background(), s, path, ref(t, "mine"), nil); !errors.Is(err, ErrDense) {
				t.Errorf("imported: %v", err)
			}
			if _, err := Open(context.Background(), imageref.DockerArchive, path, "", temp); !errors.Is(err, ErrDense) {
				t.Errorf("opened: %v", err)
			}
			for _, dir := range []string{temp, s.Dir() + "/partial", s.Dir() + "/blobs/sha256"} {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
					t.Errorf("%s: %v, %v", dir, left, err)
				}
			}
		})
	}
}

// TestDenseButLegal checks that an archive that is only large, or a little denser than usual, is accepted.
func TestDenseButLegal(t *testing.T) {
	for name, c := range map[string]struct {
		in, out int64
		want    error
	}{
		"small and dense":  {1000, denseFree, nil},
		"large":            {1 << 30, 200 << 30, nil},
		"large and dense":  {10 << 20, denseFree + denseRatio*10<<20, nil},
		"a byte too dense": {10 << 20, denseFree + denseRatio*10<<20 + 1, ErrDense},
	} {
		r := &sparing{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 1))), in: &counted{n: c.in}, out: c.out - 1}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s := openStore(t)
	zeros := aTar(t, file{name: "zeros", text: strings.Repeat("\x00", 100<<20)})
	for _, format := range []string{"gzip", "zstd"} {
		img, _ := imported(t, s, write(t, compressed(t, zeros, format)), "mine:"+format)
		if len(img.Layers) != 1 {
			t.Errorf("%s: %+v", format, img)
		}
	}
	left, _ := filepath.Glob(s.Dir() + "/partial/*")
	if !slices.Equal(left, nil) {
		t.Errorf("left: %q", left)
	}
}
