package pull

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	ggcr "github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"demesne/images/events"
)

// entry is an image for one platform in an index.
func entry(t *testing.T, platform string, mark int64) mutate.IndexAddendum {
	t.Helper()
	p, err := ParsePlatform(platform)
	if err != nil {
		t.Fatal(err)
	}
	return mutate.IndexAddendum{
		Add:        anImage(t, p.Architecture, mark, 1),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}},
	}
}

// TestPullIndex checks that only the best image for the platform is fetched from an index. If the index
// has no such image, the error lists its platforms.
func TestPullIndex(t *testing.T) {
	r := newRegistry(t)
	entries := []mutate.IndexAddendum{
		entry(t, "linux/amd64", 1000), entry(t, "linux/arm64", 1001), entry(t, "linux/arm/v6", 1002),
		entry(t, "linux/arm/v7", 1003), entry(t, "windows/amd64", 1004), entry(t, "unknown/unknown", 1005),
	}
	for _, docker := range []bool{false, true} {
		idx := mutate.AppendManifests(empty.Index, entries...)
		if docker {
			idx = mutate.IndexMediaType(idx, ggcr.DockerManifestList)
		}
		ref := r.pushIndex(t, fmt.Sprintf("o/n:%v", docker), idx)
		for platform, want := range map[string]int{"linux/amd64": 0, "linux/arm64": 1, "linux/arm/v7": 3, "linux/arm/v6": 2} {
			o := r.options(t)
			o.Platform, _ = ParsePlatform(platform)
			r.behave(nil)
			if _, err := Image(context.Background(), ref, o); err != nil {
				t.Fatalf("%s: %v", platform, err)
			}
			holds(t, o.Store, ref, entries[want].Add.(v1.Image))
			if n, _ := r.count("GET", "/manifests/"); n != 2 {
				t.Errorf("%s: %d manifests were asked for", platform, n)
			}
			r.behave(nil)
			if _, err := Image(context.Background(), ref, o); err != nil {
				t.Fatalf("%s: %v", platform, err)
			}
			if n, _ := r.count("GET", "/o/n/"); n != 0 {
				t.Errorf("%s: %d GET for an image that is there", platform, n)
			}
		}
		o := r.options(t)
		o.Platform, _ = ParsePlatform("linux/s390x")
		_, err := Image(context.Background(), ref, o)
		if got := Classify(err); got != events.CodePlatform {
			t.Fatalf("%v is %q", err, got)
		}
		const say = "no image for linux/s390x; available: linux/amd64, linux/arm/v6, linux/arm/v7, linux/arm64, windows/amd64"
		if err.Error() != say {
			t.Errorf("%q", err)
		}
	}
}

// TestPullOtherMachine checks the platform of an image without an index.
func TestPullOtherMachine(t *testing.T) {
	r := newRegistry(t)
	other := "s390x"
	ref := r.push(t, "o/n:1", anImage(t, other, 100, 1))
	o := r.options(t)
	_, err := Image(context.Background(), ref, o)
	if got := Classify(err); got != events.CodePlatform {
		t.Errorf("%v is %q", err, got)
	}
	if n, _ := r.count("GET", "/blobs/"); n != 1 {
		t.Errorf("%d blobs were asked for, not the configuration alone", n)
	}
}

// aLayer returns a tar with one file.
func aLayer(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "hello", Typeflag: tar.TypeReg, Size: 5, Mode: 0o644})
	_, err2 := w.Write([]byte("hello"))
	if err := errors.Join(err, err2, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPullMediaTypes checks that supported layers are stored byte for byte. Unsupported layers are
// refused by their type, before a request for them.
func TestPullMediaTypes(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := aLayer(t)
	for _, c := range []struct {
		layer   ggcr.MediaType
		content []byte
		whole   ggcr.MediaType
		config  ggcr.MediaType
		good    bool
	}{
		{layer: "application/vnd.oci.image.layer.v1.tar", content: plain, good: true},
		{layer: "application/vnd.oci.image.layer.v1.tar+zstd", content: z.EncodeAll(plain, nil), good: true},
		{layer: ggcr.DockerUncompressedLayer, content: plain, whole: ggcr.DockerManifestSchema2, config: ggcr.DockerConfigJSON, good: true},
		{layer: ggcr.DockerForeignLayer, content: plain},
		{layer: ggcr.OCIRestrictedLayer, content: plain},
		{layer: "application/vnd.oci.image.layer.v1.tar+gzip+encrypted", content: plain},
		{layer: "application/vnd.example.model", content: plain},
		{layer: "application/vnd.oci.image.layer.v1.tar", content: plain, config: "application/vnd.cncf.helm.config.v1+json"},
		{layer: "", content: plain},
	} {
		t.Run(string(c.layer)+" "+string(c.config), func(t *testing.T) {
			r := newRegistry(t)
			if c.whole == "" {
				c.whole = ggcr.OCIManifestSchema1
			}
			if c.config == "" {
				c.config = ggcr.OCIConfigJSON
			}
			base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, c.whole), c.config)
			img, err := mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(c.content, c.layer), MediaType: c.layer})
			if err != nil {
				t.Fatal(err)
			}
			ref := r.push(t, "o/n:1", img)
			o := r.options(t)
			_, err = Image(context.Background(), ref, o)
			if c.good {
				if err != nil {
					t.Fatal(err)
				}
				holds(t, o.Store, ref, img)
				return
			}
			want := events.CodeUnsupported
			if strings.Contains(string(c.config), "helm") {
				want = events.CodeNoImage
			}
			if got := Classify(err); got != want || !strings.Contains(err.Error(), "unsupported media type") {
				t.Errorf("%v is %q", err, got)
			}
			if n, _ := r.count("GET", "/blobs/"); n != 0 {
				t.Errorf("%d blobs were asked for", n)
			}
		})
	}
}

// TestPullSchema1 checks that schema 1 manifests, which do not pin a configuration, are refused.
func TestPullSchema1(t *testing.T) {
	r := newRegistry(t)
	o := r.options(t)
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if !strings.Contains(req.URL.Path, "/manifests/") {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v1+json")
		fmt.Fprint(w, `{"schemaVersion":1,"name":"o/n","tag":"1","architecture":"amd64","fsLayers":[],"history":[]}`)
	})
	_, err := Image(context.Background(), parseRef(t, r.host+"/o/n:1"), o)
	if got := Classify(err); got != events.CodeUnsupported {
		t.Errorf("%v is %q", err, got)
	}
}

// TestPullMirror checks that registries.conf directs requests to a mirror. The registry itself is used
// if the mirror lacks the image or fails midway.
func TestPullMirror(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 1000, 2)
	r.push(t, "copy/of/n:1", img)
	r.push(t, "real/n:1", img)
	conf := func(location string) string {
		return fmt.Sprintf("[[registry]]\nprefix = \"real.example/o\"\nlocation = \"%s/real\"\n[[registry.mirror]]\nlocation = \"%s\"\n", r.host, location)
	}
	for _, c := range []struct {
		name, mirror string
		front        func(http.ResponseWriter, *http.Request, http.Handler)
		used         string
	}{
		{"a mirror", r.host + "/copy/of", nil, "/copy/of/n/"},
		{"an empty mirror", r.host + "/nothing", nil, "/real/n/"},
		{"a mirror without its blobs", r.host + "/copy/of", status("/copy/of/n/blobs/", 404, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`), "/real/n/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := r.options(t)
			write(t, o.System.SystemRegistriesConfPath, conf(c.mirror))
			r.behave(c.front)
			ref := parseRef(t, "real.example/o/n:1")
			if _, err := Image(context.Background(), ref, o); err != nil {
				t.Fatal(err)
			}
			holds(t, o.Store, ref, img)
			if n, _ := r.count("GET", c.used); n == 0 {
				t.Errorf("nothing was asked of %s", c.used)
			}
			if _, err := Image(context.Background(), ref, o); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// TestPullShortName checks that registries.conf resolves a short name, with docker.io as the default. A
// catalogue name is never a short name.
func TestPullShortName(t *testing.T) {
	r := newRegistry(t)
	for _, c := range []struct{ conf, given, want string }{
		{"", "o/n:1", "docker.io/o/n:1"},
		{"", "redis:7", "docker.io/library/redis:7"},
		{"", "docker://redis:7", "docker.io/library/redis:7"},
		{"unqualified-search-registries = [\"a.example\", \"b.example\"]\n", "redis:7", "a.example/redis:7 b.example/redis:7"},
		{"unqualified-search-registries = [\"a.example\"]\n[aliases]\n\"redis\" = \"c.example/x/redis\"\n", "redis:7", "c.example/x/redis:7"},
		{"unqualified-search-registries = [\"a.example\"]\n", "python", "docker.io/library/python:3.12"},
		{"unqualified-search-registries = [\"a.example\"]\n", "b.example/o/n", "b.example/o/n:latest"},
	} {
		sys := r.trust(t)
		write(t, sys.SystemRegistriesConfPath, c.conf)
		all, err := candidates(sys, parseRef(t, c.given))
		if err != nil {
			t.Errorf("%q: %v", c.given, err)
			continue
		}
		var got []string
		for _, n := range all {
			got = append(got, n.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q is %q, not %q", c.given, got, c.want)
		}
	}
}

// TestPullInsecure checks that plain HTTP is used only if registries.conf allows it.
func TestPullInsecure(t *testing.T) {
	r := newPlainRegistry(t)
	img := anImage(t, runtime.GOARCH, 100, 1)
	ref := r.push(t, "o/n:1", img)
	o := r.plainOptions(t)
	if _, err := Image(context.Background(), ref, o); !PlainHTTP(err) {
		t.Errorf("it was pulled without TLS: %v", err)
	}
	o = r.plainOptions(t)
	write(t, o.System.SystemRegistriesConfPath, fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", r.host))
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	holds(t, o.Store, ref, img)
}
