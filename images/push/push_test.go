package push

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	served "github.com/google/go-containerregistry/pkg/registry"
	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
)

// aRegistry is a registry in this process, without TLS unless started with it.
type aRegistry struct {
	*httptest.Server
	host string

	mu     sync.Mutex
	served []string // "METHOD /path"
	front  func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newRegistry(t *testing.T) *aRegistry {
	t.Helper()
	r := &aRegistry{}
	inner := served.New(served.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.served = append(r.served, req.Method+" "+req.URL.Path)
		front := r.front
		r.mu.Unlock()
		if front != nil {
			front(w, req, inner)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.Start()
	r.host = r.Listener.Addr().String()
	t.Cleanup(r.Close)
	return r
}

func (r *aRegistry) behave(front func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.front, r.served = front, nil
}

func (r *aRegistry) count(part string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.served {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// shop is a store with images, and a configuration of nothing.
type shop struct {
	*testing.T
	store *images.Store
	sys   *types.SystemContext
	mu    sync.Mutex
	seen  []events.Event
}

func newShop(t *testing.T) *shop {
	t.Helper()
	store, err := images.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	dir := t.TempDir()
	for _, name := range []string{"registries.conf", "policy.json", "auth.json"} {
		text := map[string]string{"policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`, "auth.json": "{}"}[name]
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"conf.d", "registries.d", "certs.d", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &shop{T: t, store: store, sys: &types.SystemContext{
		SystemRegistriesConfPath: filepath.Join(dir, "registries.conf"), SystemRegistriesConfDirPath: filepath.Join(dir, "conf.d"),
		RegistriesDirPath: filepath.Join(dir, "registries.d"), DockerPerHostCertDirPath: filepath.Join(dir, "certs.d"),
		SignaturePolicyPath: filepath.Join(dir, "policy.json"), AuthFilePath: filepath.Join(dir, "auth.json"),
		RootForImplicitAbsolutePaths: filepath.Join(dir, "root"), DockerInsecureSkipTLSVerify: types.OptionalBoolTrue,
	}}
}

func (s *shop) options() Options {
	return Options{Store: s.store, System: s.sys, Transfer: pull.Transfer{Backoff: time.Millisecond, Idle: 5 * time.Second, Report: func(e events.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, e)
	}}}
}

// states counts the layers that ended in each state, and forgets them.
func (s *shop) states() map[events.State]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[events.State]int{}
	for _, e := range s.seen {
		if e.Layer != nil {
			all[e.State]++
		}
		if e.Event == events.Retry {
			all["retry"]++
		}
	}
	s.seen = nil
	return all
}

func parse(t *testing.T, name string) imageref.Ref {
	t.Helper()
	ref, err := imageref.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// tarOf returns a tar of one file: half of it random, half text.
func tarOf(t *testing.T, size int) []byte {
	t.Helper()
	body := make([]byte, size)
	rand.Read(body[:size/2])
	copy(body[size/2:], bytes.Repeat([]byte("text "), size/10+1))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: int64(size)}), second(w.Write(body)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func second[T any](_ T, err error) error { return err }

// image makes an image of uncompressed layers of the given sizes.
func (s *shop) image(name string, sizes ...int) *images.Image {
	s.Helper()
	var layers []oci.Layer
	ids := []oci.Digest{}
	for _, size := range sizes {
		l, err := archive.AddLayer(context.Background(), s.store, bytes.NewReader(tarOf(s.T, size)), func() error { return nil })
		if err != nil {
			s.Fatal(err)
		}
		layers, ids = append(layers, l), append(ids, l.DiffID)
	}
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": "amd64", "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	if err != nil {
		s.Fatal(err)
	}
	ref := parse(s.T, name)
	if _, err := archive.Publish(context.Background(), s.store, ref, config, layers); err != nil {
		s.Fatal(err)
	}
	img, err := s.store.Lookup(ref)
	if err != nil {
		s.Fatal(err)
	}
	return img
}

func (s *shop) push(img *images.Image, to string, change ...func(*Options)) (oci.Digest, error) {
	s.Helper()
	o := s.options()
	for _, c := range change {
		c(&o)
	}
	return Image(context.Background(), img, parse(s.T, to), o)
}

func (s *shop) pushed(img *images.Image, to string, change ...func(*Options)) oci.Digest {
	s.Helper()
	d, err := s.push(img, to, change...)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// pulled pulls into a new store, and returns the image and that store.
func (s *shop) pulled(from string) (*images.Image, *images.Store) {
	s.Helper()
	store, err := images.Open(filepath.Join(s.TempDir(), "other"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(store.Close)
	ref := parse(s.T, from)
	if _, err := pull.Image(context.Background(), ref, pull.Options{Store: store, System: s.sys, Platform: pull.Platform{OS: "linux", Architecture: "amd64"}, Transfer: pull.Transfer{Backoff: time.Millisecond}}); err != nil {
		s.Fatal(err)
	}
	img, err := store.Lookup(ref)
	if err != nil {
		s.Fatal(err)
	}
	return img, store
}

// TestPushCompressed checks that layers are compressed to the same bytes each time, whatever else runs, and that a pull
// gets the same files.
func TestPushCompressed(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 5<<20, 3000, 5<<20)
	for _, format := range []Format{"", Gzip, Zstd, None} {
		with := func(o *Options) { o.Format = format }
		name := fmt.Sprintf("%s/o/n:%s1", r.host, format)
		first := s.pushed(img, name, with)
		if got := s.states(); got[events.Pushed]+got[events.Present] != 3 {
			t.Errorf("%q: %v", format, got)
		}
		if s.pushed(img, name, with) != first || s.states()[events.Present] != 3 {
			t.Errorf("%q: the second push was another", format)
		}
		other := newRegistry(t)
		if d := s.pushed(img, other.host+"/o/n:1", with, func(o *Options) { o.Jobs = 1 }); d != first {
			t.Errorf("%q: digest %s elsewhere, not %s", format, d, first)
		}
		s.states()
		got, store := s.pulled(name)
		if got.Digest != first || len(got.Layers) != 3 {
			t.Fatalf("%q: pulled %s, not %s", format, got.Digest, first)
		}
		if (format == None) != (first == img.Digest) {
			t.Errorf("%q: digest %s, in the store %s", format, first, img.Digest)
		}
		for i, l := range got.Layers {
			if l.DiffID != img.Layers[i].DiffID || formatOf(l.MediaType) != cmp.Or(format, Gzip) {
				t.Errorf("%q: layer %d is %+v", format, i, l)
			}
		}
		if err := store.Whole(got); err != nil {
			t.Error(err)
		}
	}
}

// TestPushUnchanged checks that a pulled image is pushed byte for byte, that its layers can be converted, and that a level
// is part of the digest.
func TestPushUnchanged(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	name := r.host + "/o/n:1"
	gz := s.pushed(s.image("local/app", 100_000), name)
	img, store := s.pulled(name)
	s.store = store
	s.states()
	if d := s.pushed(img, r.host+"/o/other:1"); d != gz || s.states()[events.Present] != 1 { // one set of blobs for all
		t.Errorf("pushed as %s, not %s", d, gz)
	}
	zst := s.pushed(img, r.host+"/o/other:2", func(o *Options) { o.Format = Zstd })
	best := s.pushed(img, r.host+"/o/other:3", func(o *Options) { o.Format, o.Level = Zstd, 19 })
	plain := s.pushed(img, r.host+"/o/other:4", func(o *Options) { o.Format = None })
	if zst == gz || best == zst || plain == gz {
		t.Errorf("digests %s, %s, %s, %s", gz, zst, best, plain)
	}
	for n, f := range map[string]Format{"2": Zstd, "3": Zstd, "4": None} {
		if got, _ := s.pulled(r.host + "/o/other:" + n); formatOf(got.Layers[0].MediaType) != f || got.Layers[0].DiffID != img.Layers[0].DiffID {
			t.Errorf("%s: %+v", n, got.Layers)
		}
	}
	for _, o := range []Options{{Format: "xz"}, {Format: Gzip, Level: 10}, {Format: None, Level: 1}, {Format: Zstd, Level: 23}} {
		if _, err := s.push(img, name, func(to *Options) { to.Format, to.Level = o.Format, o.Level }); pull.Classify(err) != events.CodeInvalid {
			t.Errorf("%q %d: %v", o.Format, o.Level, err)
		}
	}
}

// TestPushMounted checks that a layer that another repository of the registry has is not sent, and that a registry that
// does not mount gets it.
func TestPushMounted(t *testing.T) {
	for _, c := range []struct {
		name  string
		front func(http.ResponseWriter, *http.Request, http.Handler)
		want  events.State
	}{
		{"as asked", mounts, events.Mounted},
		{"another upload", nil, events.Pushed}, // the registry in this process ignores the question, and has one set of blobs
		{"an error", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.URL.Query().Has("mount") {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			next.ServeHTTP(w, r)
		}, events.Pushed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := newRegistry(t), newShop(t)
			img := s.image("local/app", 100_000)
			first := s.pushed(img, r.host+"/o/n:1")
			s.states()
			var sent sync.Map // the registry has one set of blobs for all repositories
			r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
				if req.Method == http.MethodPut {
					sent.Store(req.URL.Query().Get("digest"), true)
				}
				if _, ok := sent.Load(path.Base(req.URL.Path)); req.Method == http.MethodHead && strings.Contains(req.URL.Path, "/other/") && !ok {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				if c.front != nil {
					c.front(w, req, next)
					return
				}
				next.ServeHTTP(w, req)
			})
			if d := s.pushed(img, r.host+"/o/other:1"); d != first {
				t.Errorf("%s, not %s", d, first)
			}
			if got := s.states(); got[c.want] != 1 {
				t.Errorf("%v", got)
			}
		})
	}
}

// mounts answers as a registry that mounts every blob.
func mounts(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.URL.Query().Has("mount") && r.URL.Query().Get("from") == "o/n" {
		w.WriteHeader(http.StatusCreated)
		return
	}
	next.ServeHTTP(w, r)
}

// TestPushDamaged checks that a damaged layer is not pushed, in any form.
func TestPushDamaged(t *testing.T) {
	for _, format := range []Format{Gzip, Zstd, None} {
		r, s := newRegistry(t), newShop(t)
		img := s.image("local/app", 3<<20)
		f, err := os.OpenFile(filepath.Join(s.store.Dir(), "blobs/sha256", img.Layers[0].Digest.Encoded()), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("damage"), 2<<20); err != nil {
			t.Fatal(err)
		}
		f.Close()
		_, err = s.push(img, r.host+"/o/n:1", func(o *Options) { o.Format = format })
		if pull.Classify(err) != events.CodeCorrupt || r.count("PUT /v2/o/n/manifests") > 0 {
			t.Errorf("%s: %v", format, err)
		}
	}
}
