package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
)

// TestMain runs the tests, or one of the programs that the tests start.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(roles[role]())
	}
	os.Exit(m.Run())
}

// roleVar selects the program to run in place of the tests.
const roleVar = "DEMESNE_TEST_ROLE"

var roles = map[string]func() int{
	"images":  fakeImages,
	"add":     addForever,
	"collect": collectForever,
	"full":    fillTheDisk,
}

// role returns a command that runs the test binary in a role.
func role(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testProgram(t))
	cmd.Env = append(os.Environ(), append(env, roleVar+"="+name)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func testProgram(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mustParse(t testing.TB, name string) imageref.Ref {
	t.Helper()
	ref, err := imageref.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// put stores content and returns its descriptor.
func put(ctx context.Context, s *Store, b []byte, mediaType string) (oci.Descriptor, error) {
	d, n, err := s.Put(ctx, bytes.NewReader(b), 1<<30)
	return oci.Descriptor{MediaType: mediaType, Digest: d, Size: n}, err
}

// makeImage stores an image with these layers, without a name. The layers are not compressed, so
// their DiffIDs are the digests of the blobs.
func makeImage(ctx context.Context, s *Store, config oci.Config, layers ...[]byte) (oci.Descriptor, error) {
	m := struct {
		SchemaVersion int              `json:"schemaVersion"`
		MediaType     string           `json:"mediaType"`
		Config        oci.Descriptor   `json:"config"`
		Layers        []oci.Descriptor `json:"layers"`
	}{SchemaVersion: 2, MediaType: oci.TypeOCIManifest, Layers: []oci.Descriptor{}}
	ids := []oci.Digest{}
	for _, l := range layers {
		d, err := put(ctx, s, l, "application/vnd.oci.image.layer.v1.tar")
		if err != nil {
			return d, err
		}
		m.Layers = append(m.Layers, d)
		ids = append(ids, d.Digest)
	}
	raw, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": "2026-01-02T03:04:05Z", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err != nil {
		return oci.Descriptor{}, err
	}
	if m.Config, err = put(ctx, s, raw, "application/vnd.oci.image.config.v1+json"); err != nil {
		return m.Config, err
	}
	if raw, err = json.Marshal(m); err != nil {
		return oci.Descriptor{}, err
	}
	return put(ctx, s, raw, oci.TypeOCIManifest)
}

// addImage makes an image and names it.
func addImage(t testing.TB, s *Store, name string, layers ...[]byte) *Image {
	t.Helper()
	m, err := makeImage(t.Context(), s, oci.Config{Cmd: []string{"sh"}, Env: []string{"A=" + name}}, layers...)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Add(t.Context(), Record{Ref: mustParse(t, name), Manifest: m, Pulled: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// noise returns pseudo-random content that depends only on the seed.
func noise(seed uint64, n int) []byte {
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	b := make([]byte, n)
	src.Read(b)
	return b
}

// blobFiles returns the names in a directory of the store.
func blobFiles(t testing.TB, s *Store, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(s.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// checkStore fails the test unless the index parses and all blobs of its images have the right
// content.
func checkStore(t testing.TB, s *Store) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range list {
		if img.Err != nil {
			t.Errorf("image %v: %v", img.Names, img.Err)
		} else if err := s.Whole(img.Image); err != nil {
			t.Errorf("image %v: %v", img.Names, err)
		}
	}
	damage, err := s.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range damage {
		t.Errorf("blob %s of %v: %v", d.Digest, d.Names, d.Why)
	}
}

// contains fails the test unless text contains all the words.
func contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func tagged(i int) string { return fmt.Sprintf("localhost/test:%d", i) }
