package integration

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// gallery is a box with an image store of its own and a registry to fill it from.
type gallery struct {
	*box
	reg *fixture.Registry
	cli func(args ...string) *exec.Cmd // starts the CLI as the user that the test is about
}

func newGallery(t testing.TB) *gallery { return newGalleryOf(t, fixture.Options{}) }

func newGalleryOf(t testing.TB, opts fixture.Options) *gallery {
	t.Helper()
	b := newBox(t)
	reg, err := fixture.NewRegistry(b.dir+"/registry", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Close)
	g := &gallery{box: b, reg: reg}
	g.cli = func(args ...string) *exec.Cmd { return g.command("demesne", args...) }
	g.extra = []string{"CONTAINERS_REGISTRIES_CONF=" + g.file("registries.conf", reg.Conf(), 0o644)}
	g.mkdir("i")
	t.Cleanup(g.sweep)
	return g
}

// sweep checks that gc --all --build leaves no tree, independent of the owners of its files. An ordinary user could not
// remove the box without it.
func (g *gallery) sweep() {
	g.Helper()
	eventually(g, "every process to be gone", func() bool { return len(descendants()) == 0 })
	if r := g.do("gc", "--all", "--build"); r.code != 0 {
		g.Errorf("gc --all: %+v", r)
	}
	if left := g.trees(); len(left) > 0 {
		g.Errorf("trees after gc --all: %q", left)
	}
}

// oneID makes the gallery's user one without subordinate ids.
func (g *gallery) oneID(t *testing.T) *gallery {
	t.Helper()
	g.cli = g.single(t)
	if g.uid >= 0 {
		os.Chown(g.store, g.uid, g.uid)
	}
	return g
}

// needIDs skips the test where the sandboxes of its user would have one id.
func needIDs(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		program(t, "newuidmap")
	}
}

// withIDs runs f with and without subordinate ids.
func withIDs(t *testing.T, f func(t *testing.T, g *gallery, one bool)) {
	t.Run("subordinate ids", func(t *testing.T) {
		needIDs(t)
		f(t, newGallery(t), false)
	})
	t.Run("one id", func(t *testing.T) { f(t, newGallery(t).oneID(t), true) })
}

// do runs the CLI to its end; ok also requires it to succeed.
func (g *gallery) do(args ...string) result {
	g.Helper()
	return g.finish(g.cli(args...))
}

func (g *gallery) ok(args ...string) string {
	g.Helper()
	r := g.do(args...)
	if r.code != 0 {
		g.Fatalf("%q: exit %d\nstdout: %s\nstderr: %s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// inside runs shell text in a sandbox of image; it must succeed.
func (g *gallery) inside(image, script string, flags ...string) string {
	g.Helper()
	return g.ok(append(append([]string{"run", "--image", image}, flags...), "-c", script)...)
}

// told runs the CLI, which must report the error in one line and exit with 125.
func (g *gallery) told(t *testing.T, part string, args ...string) {
	t.Helper()
	r := g.do(args...)
	line, rest, _ := strings.Cut(lastLines(r.stderr), "\n")
	if r.code != 125 || !strings.HasPrefix(line, "demesne: ") || !strings.Contains(line+rest, part) || r.stdout != "" {
		t.Errorf("%q: exit %d\nstdout: %s\nstderr: %s\nwant %q", args, r.code, r.stdout, r.stderr, part)
	}
}

// lastLines returns text from demesne's last line on; progress may precede it.
func lastLines(text string) string {
	if i := strings.LastIndex("\n"+text, "\ndemesne: "); i >= 0 {
		return text[i:]
	}
	return text
}

// push builds an image of layers and pushes it to the registry.
func (g *gallery) push(repo string, config v1.Config, layers ...[]fixture.Entry) v1.Image {
	g.Helper()
	img := g.image(config, layers...)
	if err := g.reg.Push(repo, img); err != nil {
		g.Fatal(err)
	}
	return img
}

func (g *gallery) image(config v1.Config, layers ...[]fixture.Entry) v1.Image {
	g.Helper()
	var all []v1.Layer
	for _, entries := range layers {
		l, err := fixture.Layer(entries...)
		if err != nil {
			g.Fatal(err)
		}
		all = append(all, l)
	}
	img, err := fixture.Image(config, all...)
	if err != nil {
		g.Fatal(err)
	}
	return img
}

// busybox returns the layer that most test images start with.
func (g *gallery) busybox() []fixture.Entry {
	g.Helper()
	entries, err := fixture.Busybox()
	if err != nil {
		need(g, false, err.Error())
	}
	return entries
}

// simple pushes busybox under repo and returns its reference.
func (g *gallery) simple(repo string) (ref string, img v1.Image) {
	g.Helper()
	img = g.push(repo, v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"sh", "-c", "echo default"}}, g.busybox())
	return g.reg.Ref(repo), img
}

// trees lists the unpacked layers of the store.
func (g *gallery) trees() (all []string) {
	found, _ := filepath.Glob(g.store + "/trees/*/*/fs")
	return found
}

// listed is a line of demesne images --json.
type listed struct {
	Names        []string
	Digest       string
	Size, Shared int64
	Dropped      int64
	Unpacked     int64
	Used         string
}

func (g *gallery) listed() (all []listed) {
	g.Helper()
	text := g.ok("images", "--json")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		g.Fatalf("images --json: %v: %s", err, text)
	}
	return all
}

// damage flips a bit in the middle of every blob of at least min bytes, and returns their number.
func (g *gallery) damage(min int64) (n int) {
	g.Helper()
	filepath.WalkDir(g.store+"/blobs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil || int64(len(raw)) < min {
			return err
		}
		raw[len(raw)/2] ^= 1
		n++
		os.Chmod(path, 0o644)
		return os.WriteFile(path, raw, 0o644)
	})
	return n
}

// blobs returns a fault function that affects only GETs of blobs.
func blobs(f fixture.Fault) func(*http.Request) *fixture.Fault {
	return func(r *http.Request) *fixture.Fault {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			return &f
		}
		return nil
	}
}

func digestOf(t testing.TB, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}
