package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// file is a tar entry that a test writes.
type file struct {
	name string
	kind byte // tar.TypeReg if zero
	text string
	link string
	mode int64
}

// aTar returns a tar archive of the files.
func aTar(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if f.kind == 0 {
			f.kind = tar.TypeReg
		}
		if f.mode == 0 {
			f.mode = 0o644
		}
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: f.mode, Size: int64(len(f.text))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// listing returns one line for each entry of a tar archive: kind, name, link, text.
func listing(t *testing.T, r io.Reader) []string {
	t.Helper()
	var all []string
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSuffix(h.Name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			line += "/"
		case tar.TypeLink:
			line += " = " + h.Linkname
		case tar.TypeSymlink:
			line += " -> " + h.Linkname
		case tar.TypeReg:
			line += " " + string(text)
		default:
			line += " ?" + string(h.Typeflag)
		}
		all = append(all, line)
	}
}

func compressed(t *testing.T, b []byte, format string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch format {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zstd":
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	default:
		return b
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openStore(t *testing.T) *images.Store {
	t.Helper()
	s, err := images.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func ref(t *testing.T, name string) imageref.Ref {
	t.Helper()
	r, err := imageref.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// imported imports a path and looks the image up.
func imported(t *testing.T, s *images.Store, path, name string) (*images.Image, []string) {
	t.Helper()
	var notices []string
	d, err := Import(context.Background(), s, path, ref(t, name), func(n string) { notices = append(notices, n) })
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Lookup(ref(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if img.Digest != d || len(img.Layers) != 1 {
		t.Errorf("the image is %+v, not %s", img, d)
	}
	return img, notices
}

func exported(t *testing.T, s *images.Store, img *images.Image) []string {
	t.Helper()
	var b bytes.Buffer
	if err := Export(context.Background(), s, img, &b); err != nil {
		t.Fatal(err)
	}
	return listing(t, &b)
}

// TestImportTar checks that a root file system is imported unchanged, compressed or not. The same
// archive always makes the same image, and the DiffID is the digest of the uncompressed archive.
func TestImportTar(t *testing.T) {
	s := openStore(t)
	plain := aTar(t, file{name: "./", kind: tar.TypeDir, mode: 0o755}, file{name: "./etc/hello", text: "hi"})
	for _, format := range []string{"", "gzip", "zstd"} {
		b := compressed(t, plain, format)
		// Data after the end of the archive belongs to the blob and to its digest.
		for _, tail := range []string{"", strings.Repeat("\x00", 100_000)} {
			if format != "" && tail != "" {
				continue
			}
			path := write(t, append(slices.Clone(b), tail...))
			img, _ := imported(t, s, path, "mine:"+format+"x")
			if want := oci.DigestOf(append(slices.Clone(plain), tail...)); img.Layers[0].DiffID != want {
				t.Errorf("%s: the DiffID is %s, not %s", format, img.Layers[0].DiffID, want)
			}
			again, _ := imported(t, s, path, "again")
			if again.Digest != img.Digest {
				t.Errorf("%s: twice imported it is %s and %s", format, img.Digest, again.Digest)
			}
			if got := exported(t, s, img); !slices.Equal(got, []string{"./", "etc/hello hi"}) {
				t.Errorf("%s: %q", format, got)
			}
		}
	}
	if bad, err := s.Verify(context.Background()); err != nil || len(bad) != 0 {
		t.Errorf("%v, %v", bad, err)
	}
}

// TestImportBad checks that a file that is not a root file system is refused and leaves no image.
func TestImportBad(t *testing.T) {
	whole := aTar(t, file{name: "a", text: strings.Repeat("x", 10_000)})
	for name, b := range map[string][]byte{
		"empty":        nil,
		"not a tar":    []byte(strings.Repeat("hello ", 1000)),
		"cut":          whole[:6000],
		"cut gzip":     compressed(t, whole, "gzip")[:60],
		"only zeroes":  make([]byte, 10240),
		"gzip of text": compressed(t, []byte("hello"), "gzip"),
		"xz":           []byte("\xfd7zXZ\x00 and more of it"),
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			path := write(t, b)
			_, err := Recognize(path)
			if err == nil {
				_, err = Import(context.Background(), s, path, ref(t, "mine"), nil)
			}
			if err == nil {
				t.Error("it was imported")
			}
			if all, err := s.List(); err != nil || len(all) != 0 {
				t.Errorf("%d images, %v", len(all), err)
			}
		})
	}
}

// TestImportCanceled checks that a cancelled import leaves nothing behind.
func TestImportCanceled(t *testing.T) {
	s := openStore(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	path := write(t, aTar(t, file{name: "a", text: "b"}))
	if _, err := Import(ctx, s, path, ref(t, "mine"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, dir := range []string{"partial", "blobs/sha256"} {
		if left, err := os.ReadDir(filepath.Join(s.Dir(), dir)); err != nil || len(left) != 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
}

// TestDecompressXZ checks xz, and that an archive cannot require any amount of memory.
func TestDecompressXZ(t *testing.T) {
	for text, want := range map[string]error{
		"/Td6WFoAAAFpIt42AgAhARwAAAAQz1jMAQAIaGVsbG8geHoKAAAAAFV+Ln4AAR0Jk2E2ppBCmQ0BAAAAAAFZWg==":     nil,            // -9
		"/Td6WFoAAATm1rRGAgAhASIAAACCQKzcAQAIaGVsbG8geHoKAAAAAMFJOvpjUhRaAAEhCWwYxdUftvN9AQAAAAAEWVo=": xz.ErrMemlimit, // a window of 512 MiB
	} {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		r, err := Decompress(bytes.NewReader(raw))
		if err == nil {
			got, err = io.ReadAll(r)
		}
		if !errors.Is(err, want) || err == nil && string(got) != "hello xz\n" {
			t.Errorf("%q, %v, want %v", got, err, want)
		}
	}
}
