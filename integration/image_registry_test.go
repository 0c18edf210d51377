package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestImagePlatform checks that --platform selects another machine's image from an index. Running it fails with
// that reason, and a pull without the flag fetches this machine's image again.
func TestImagePlatform(t *testing.T) {
	g := newGallery(t)
	layer := g.layerOf(g.busybox())
	own, err := fixture.Image(v1.Config{Cmd: []string{"/bin/echo", "mine"}}, layer)
	if err != nil {
		t.Fatal(err)
	}
	other, err := fixture.ImageFor(otherArch(), v1.Config{Cmd: []string{"/bin/echo", "theirs"}}, layer)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: own}, mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: otherArch()}}})
	if err := g.reg.Push("demo:1", index); err != nil {
		t.Fatal(err)
	}
	ref := g.reg.Ref("demo:1")
	for _, c := range []struct {
		flags []string
		want  v1.Image
	}{{nil, own}, {[]string{"--platform", "linux/" + otherArch()}, other}, {nil, own}} {
		if got := strings.TrimSpace(g.ok(append(append([]string{"pull", "-q"}, c.flags...), ref)...)); got != digestOf(t, c.want) {
			t.Errorf("pull %q: %s, want %s", c.flags, got, digestOf(t, c.want))
		}
	}
	g.told(t, "plan9/mips", "pull", "--platform", "plan9/mips", ref)
	g.told(t, "linux", "pull", "--platform", "linux", ref)
}

// TestImageCredentialHelper checks that a credential helper's answer opens a registry, and that a failing helper
// is reported.
func TestImageCredentialHelper(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "me", Password: "secret"})
	ref, _ := g.simple("private:1")
	helper := func(text string) { g.file("helpers/docker-credential-fake", "#!/bin/sh\n"+text+"\n", 0o755) }
	g.mkdir("helpers")
	helper("echo no such credentials >&2; exit 1")
	g.file("h/.docker/config.json", fmt.Sprintf(`{"credHelpers":{%q:"fake"}}`, g.reg.Host), 0o600)
	defer os.RemoveAll(g.home + "/.docker")
	g.extra = append(g.extra, "PATH="+g.dir+"/helpers:"+os.Getenv("PATH"))
	g.told(t, "", "pull", ref)
	helper(`server=$(cat); [ "$1" = get ] && echo "{\"ServerURL\":\"$server\",\"Username\":\"me\",\"Secret\":\"secret\"}"`)
	g.ok("pull", ref)
}

// TestImageMirror checks that the mirrors in registries.conf replace an unreachable registry, and that the image
// keeps the name that was asked for.
func TestImageMirror(t *testing.T) {
	g := newGallery(t)
	img := g.push("mirror/demo:1", v1.Config{Cmd: []string{"/bin/echo", "mirrored"}}, g.busybox())
	g.file("registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n",
		"upstream.invalid", g.reg.Ref("mirror")), 0o644)
	const ref = "upstream.invalid/demo:1"
	if got := g.ok("pull", "-q", ref); strings.TrimSpace(got) != digestOf(t, img) {
		t.Errorf("pull: %q", got)
	}
	if r := g.do("run", "--image", ref); r.stdout != "mirrored\n" {
		t.Errorf("run: %+v", r)
	}
	g.told(t, "upstream.invalid", "pull", "upstream.invalid/nosuch:1")
}

// TestImageProxy checks that the proxy variables apply to pulls from a registry that only a proxy can reach.
func TestImageProxy(t *testing.T) {
	g := newGallery(t)
	_, img := g.simple("demo:1")
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.Host != "registry.invalid" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		asked.Add(1)
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: g.reg.Host}).ServeHTTP(w, r)
	}))
	defer proxy.Close()
	g.file("registries.conf", "[[registry]]\nlocation = \"registry.invalid\"\ninsecure = true\n", 0o644)
	const ref = "registry.invalid/demo:1"
	g.told(t, "registry.invalid", "pull", ref)
	g.extra = append(g.extra, "HTTP_PROXY="+proxy.URL, "HTTPS_PROXY="+proxy.URL)
	if got := g.ok("pull", "-q", ref); strings.TrimSpace(got) != digestOf(t, img) || asked.Load() == 0 {
		t.Errorf("pull: %q; the proxy was asked %d times", got, asked.Load())
	}
}
