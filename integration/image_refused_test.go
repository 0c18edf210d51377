package integration

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// otherArch returns an architecture other than this machine's.
func otherArch() string {
	if runtime.GOARCH == "arm64" {
		return "s390x"
	}
	return "arm64"
}

// TestImageRefused checks the ways in which a name can fail to be an image. Each gives one line, exit code 125,
// and an unchanged store.
func TestImageRefused(t *testing.T) {
	g := newGallery(t)
	other, err := fixture.ImageFor(otherArch(), v1.Config{}, g.layerOf(g.busybox()))
	if err != nil {
		t.Fatal(err)
	}
	odd := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	if odd, err = mutate.AppendLayers(odd, static.NewLayer([]byte("layer"), "application/vnd.example.layer.v1.flat")); err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: otherArch()}}})
	for repo, image := range map[string]any{"other:1": other, "odd:1": odd, "index:1": index} {
		if err := g.reg.Push(repo, image); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for _, c := range []struct{ name, part string }{
		{"pyhton", `did you mean "python"`}, {"pyhton", "node"}, {"nosuchthing", "known"},
		{nobody + "/x:1", "connect"}, {g.reg.Ref("nosuch:1"), "nosuch"}, {g.reg.Ref("other:nosuch"), "other"},
		{g.reg.Ref("other:1"), otherArch()}, {g.reg.Ref("index:1"), otherArch()}, {g.reg.Ref("odd:1"), "unsupported media type"},
		{"UPPER/case", "case"}, {"", ""}, {"a b", ""}, {"x@sha256:12", ""}, {"-x", ""}, {"oci:" + g.dir + "/nosuch", "nosuch"}, {"docker-archive:" + g.dir + "/nosuch", "nosuch"},
		{"oci-archive:/etc/passwd", ""}, {"dir:" + g.dir + "/nosuch", "nosuch"}, {"dir:/etc/passwd", "directory"}, {g.reg.Ref("x@sha256:" + strings.Repeat("0", 64)), "x"},
	} {
		for _, verb := range [][]string{{"run", "--image", c.name, "--", "true"}, {"pull", c.name}} {
			if verb[0] == "pull" && (strings.HasPrefix(c.name, "dir:") || c.name == "-x") {
				continue
			}
			g.told(t, c.part, verb...)
		}
	}
	if all := g.listed(); len(all) > 0 {
		t.Errorf("in the store: %+v", all)
	}
	g.ok("images", "check")
}

func (g *gallery) layerOf(entries []fixture.Entry) v1.Layer {
	g.Helper()
	l, err := fixture.Layer(entries...)
	if err != nil {
		g.Fatal(err)
	}
	return l
}

// TestImageRefusedByRegistry checks that definite HTTP statuses are reported by their meaning, without retries.
func TestImageRefusedByRegistry(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	for status, part := range map[int]string{401: "authentication", 403: "denied", 404: "not found"} {
		g.reg.Reset()
		g.reg.Fail(func(r *http.Request) *fixture.Fault {
			if strings.Contains(r.URL.Path, "/manifests/") {
				return &fixture.Fault{Status: status}
			}
			return nil
		})
		g.told(t, part, "pull", ref)
		if n := len(g.reg.Requests()); n > 6 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
	g.reg.Reset()
	g.reg.Fail(blobs(fixture.Fault{Flip: true}))
	g.told(t, "", "pull", ref)
	if all := g.listed(); len(all) > 0 {
		t.Errorf("in the store: %+v", all)
	}
	g.reg.Reset()
	g.ok("pull", ref)
}

// TestImageCredentials checks that credentials are read from where docker and podman keep them, and that wrong
// ones are reported as wrong.
func TestImageCredentials(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "me", Password: "secret"})
	ref, _ := g.simple("private:1")
	auth := func(password string) string {
		return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, g.reg.Host, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	}
	g.told(t, "authentication", "pull", ref)
	docker := g.file("h/.docker/config.json", auth("mistaken"), 0o600)
	defer os.RemoveAll(g.home + "/.docker")
	r := g.do("pull", ref)
	if r.code != 125 || !strings.Contains(r.stderr, "authentication") || !strings.Contains(r.stderr, "hint: ") || strings.Contains(r.stderr, "mistaken") {
		t.Errorf("wrong credentials: %+v", r)
	}
	os.WriteFile(docker, []byte(auth("secret")), 0o600)
	g.ok("pull", ref)
	g.ok("rmi", ref)
	os.RemoveAll(g.home + "/.docker")
	g.extra = append(g.extra, "REGISTRY_AUTH_FILE="+g.file("auth.json", auth("secret"), 0o600))
	g.ok("pull", ref)
	// A sandbox does not see registry credentials.
	if got := g.inside(ref, "env; cat /root/.docker/config.json 2>/dev/null; true"); strings.Contains(got, "secret") || strings.Contains(got, "AUTH") {
		t.Errorf("inside: %q", got)
	}
}

// TestImagePrivateCA checks that a private CA is found where docker and podman look for it, and that no other
// certificate is accepted.
func TestImagePrivateCA(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{TLS: true})
	ref, _ := g.simple("demo:1")
	g.told(t, "certificate", "pull", ref)
	g.file("h/.config/containers/certs.d/"+g.reg.Host+"/ca.crt", string(g.reg.CA()), 0o644)
	defer os.RemoveAll(g.home + "/.config")
	g.ok("pull", ref)
}

// TestImagePolicy checks that policy.json of the containers ecosystem is enforced.
func TestImagePolicy(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	defer os.RemoveAll(g.home + "/.config")
	policy := g.file("h/.config/containers/policy.json", `{"default":[{"type":"reject"}]}`, 0o644)
	g.told(t, "policy", "pull", ref)
	os.WriteFile(policy, []byte(`{"default":[{"type":"reject"}],"transports":{"docker":{"`+g.reg.Host+`":[{"type":"insecureAcceptAnything"}]}}}`), 0o644)
	g.ok("pull", ref)
	os.WriteFile(policy, []byte(`{`), 0o644)
	g.ok("rmi", ref)
	g.told(t, "policy", "pull", ref)
}

// TestImagePlainHTTP types the hint for a registry without TLS.
func TestImagePlainHTTP(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	defer os.RemoveAll(g.home + "/.config")
	g.extra = nil // no registries.conf
	g.told(t, "server gave HTTP response", "pull", ref)
	_, line, _ := strings.Cut(g.do("pull", ref).stderr, "if you trust the network to it: ")
	if r := g.finish(g.command("/bin/sh", "-c", line)); r.code != 0 {
		t.Fatalf("%s: %+v", line, r)
	}
	g.ok("pull", ref)
}

// TestImageBusy checks that a registry that limits requests is reported at once, with its time.
func TestImageBusy(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.reg.Fail(func(r *http.Request) *fixture.Fault {
		return &fixture.Fault{Status: 429, Header: http.Header{"Retry-After": {"60"}}}
	})
	start := time.Now()
	g.told(t, "the registry asks to wait: again in 60 s", "pull", ref)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("after %v", took)
	}
}
