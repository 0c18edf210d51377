package pull

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// aRegistry is a real registry in this process, over TLS with its own certificate.
type aRegistry struct {
	*httptest.Server
	host string

	mu     sync.Mutex
	served []request
	front  func(w http.ResponseWriter, r *http.Request, next http.Handler) // may be nil
}

// request is an answered request, with the number of bytes sent.
type request struct {
	method, path, rang string
	status             int
	bytes              int64
}

func newRegistry(t *testing.T) *aRegistry {
	t.Helper()
	r := prepare(t)
	r.StartTLS()
	r.host = r.Listener.Addr().String()
	return r
}

// newPlainRegistry returns a registry without TLS.
func newPlainRegistry(t *testing.T) *aRegistry {
	t.Helper()
	r := prepare(t)
	r.Start()
	r.host = r.Listener.Addr().String()
	return r
}

func prepare(t *testing.T) *aRegistry {
	t.Helper()
	r := &aRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		counted := &counter{ResponseWriter: w, status: 200}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.served = append(r.served, request{req.Method, req.URL.Path, req.Header.Get("Range"), counted.status, counted.n})
		}()
		r.mu.Lock()
		front := r.front
		r.mu.Unlock()
		if front != nil {
			front(counted, req, inner)
			return
		}
		inner.ServeHTTP(counted, req)
	}))
	r.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(r.Close)
	return r
}

// certificate returns a self-signed certificate for this machine's names.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	who := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost", "registry.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, who, who, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

type counter struct {
	http.ResponseWriter
	status int
	n      int64
}

func (c *counter) WriteHeader(status int) { c.status = status; c.ResponseWriter.WriteHeader(status) }
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

// behave sets a handler in front of the registry.
func (r *aRegistry) behave(front func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.front, r.served = front, nil
}

// count counts the requests so far with the given method and path.
func (r *aRegistry) count(method, part string) (n int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.served {
		if s.method == method && strings.Contains(s.path, part) {
			n, bytes = n+1, bytes+s.bytes
		}
	}
	return n, bytes
}

// trust returns a configuration that trusts the registry's certificate and uses nothing of this
// machine's configuration.
func (r *aRegistry) trust(t *testing.T) *types.SystemContext {
	t.Helper()
	certs := t.TempDir()
	dir := filepath.Join(certs, r.host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), r.pem())
	return configIn(t, certs)
}

// configIn makes a configuration in a directory, which may contain certificates.
func configIn(t *testing.T, dir string) *types.SystemContext {
	t.Helper()
	for name, text := range map[string]string{
		"registries.conf": "", "auth.json": "{}", "policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`,
	} {
		write(t, filepath.Join(dir, name), text)
	}
	for _, name := range []string{"registries.conf.d", "registries.d", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return config(dir)
}

// config returns the configuration in a directory.
func config(dir string) *types.SystemContext {
	return &types.SystemContext{
		DockerPerHostCertDirPath:     dir,
		SystemRegistriesConfPath:     filepath.Join(dir, "registries.conf"),
		SystemRegistriesConfDirPath:  filepath.Join(dir, "registries.conf.d"),
		UserShortNameAliasConfPath:   filepath.Join(dir, "aliases.conf"),
		RegistriesDirPath:            filepath.Join(dir, "registries.d"),
		AuthFilePath:                 filepath.Join(dir, "auth.json"),
		SignaturePolicyPath:          filepath.Join(dir, "policy.json"),
		RootForImplicitAbsolutePaths: filepath.Join(dir, "root"),
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// push pushes an image to the registry under a name such as "o/n:tag", and returns its reference.
func (r *aRegistry) push(t *testing.T, as string, img v1.Image) imageref.Ref {
	t.Helper()
	ref := r.name(t, as)
	if err := remote.Write(ref, img, remote.WithTransport(r.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	return parseRef(t, r.host+"/"+as)
}

func (r *aRegistry) pushIndex(t *testing.T, as string, idx v1.ImageIndex) imageref.Ref {
	t.Helper()
	if err := remote.WriteIndex(r.name(t, as), idx, remote.WithTransport(r.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	return parseRef(t, r.host+"/"+as)
}

func (r *aRegistry) name(t *testing.T, as string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(r.host + "/" + as)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func parseRef(t *testing.T, s string) imageref.Ref {
	t.Helper()
	ref, err := imageref.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// anImage returns an image for a platform, with random layers of the given size.
func anImage(t *testing.T, architecture string, size int64, layers int) v1.Image {
	t.Helper()
	img, err := random.Image(size, int64(layers))
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	config.Config.Cmd = []string{"/hello"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

func openStore(t *testing.T, dir string) *images.Store {
	t.Helper()
	s, err := images.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// plainOptions returns options that trust no certificate.
func (r *aRegistry) plainOptions(t *testing.T) Options {
	t.Helper()
	return Options{Store: openStore(t, t.TempDir()), System: configIn(t, t.TempDir()), Transfer: Transfer{Backoff: time.Millisecond}}
}

// options returns options for a test, with short waits between attempts.
func (r *aRegistry) options(t *testing.T) Options {
	t.Helper()
	return Options{Store: openStore(t, t.TempDir()), System: r.trust(t), Transfer: Transfer{Backoff: time.Millisecond, Idle: 10 * time.Second}}
}

// holds fails the test unless the store has exactly the image, byte for byte.
func holds(t *testing.T, s *images.Store, ref imageref.Ref, img v1.Image) {
	t.Helper()
	got, err := s.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Digest) != want.String() {
		t.Errorf("the store has %s, not %s", got.Digest, want)
	}
	for _, l := range got.Layers {
		f, err := s.Blob(l.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(f); err != nil {
			t.Fatal(err)
		}
		if oci.DigestOf(b.Bytes()) != l.Digest {
			t.Errorf("layer %s has another content", l.Digest)
		}
	}
}
