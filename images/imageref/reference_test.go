package imageref

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/images/oci"
)

const hexDigits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 128)
	for _, c := range []struct {
		in   string
		kind Kind
		full string
	}{
		{"host", Host, "host"},
		{"python", Registry, "docker.io/library/python:3.12"},
		{"go", Registry, "docker.io/library/golang:1"},
		{"anaconda", Registry, "docker.io/continuumio/anaconda3:latest"},
		{"debian", Registry, "docker.io/library/debian:latest"},
		{"debian:12", Registry, "docker.io/library/debian:12"},
		{"redis", Bare, "docker.io/library/redis:latest"},
		{"localhost", Bare, "docker.io/library/localhost:latest"},
		{"redis.io", Registry, "docker.io/library/redis.io:latest"},
		{"library/redis", Registry, "docker.io/library/redis:latest"},
		{"docker.io/redis", Registry, "docker.io/library/redis:latest"},
		{"index.docker.io/redis", Registry, "docker.io/library/redis:latest"},
		{"docker://redis:7", Registry, "docker.io/library/redis:7"},
		{"o/n", Registry, "docker.io/o/n:latest"},
		{"ghcr.io/o/n:tag", Registry, "ghcr.io/o/n:tag"},
		{"GHCR.io/o/n:Tag_1.x-y", Registry, "ghcr.io/o/n:Tag_1.x-y"},
		{"localhost/a", Registry, "localhost/a:latest"},
		{"localhost:5000/a/b/c", Registry, "localhost:5000/a/b/c:latest"},
		{"reg:5000/a:b", Registry, "reg:5000/a:b"},
		{"127.0.0.1:1/a", Registry, "127.0.0.1:1/a:latest"},
		{"[::1]:5000/a", Registry, "[::1]:5000/a:latest"},
		{"[fe80::1]/a:t", Registry, "[fe80::1]/a:t"},
		{"a__b/c-d/e---f/g.h_i", Registry, "docker.io/a__b/c-d/e---f/g.h_i:latest"},
		{"a:" + long, Registry, "docker.io/library/a:" + long},
		{"debian@sha256:" + hexDigits, Registry, "docker.io/library/debian@sha256:" + hexDigits},
		{"debian:12@sha256:" + hexDigits, Registry, "docker.io/library/debian@sha256:" + hexDigits},
		{"sha256:" + hexDigits, Pinned, "sha256:" + hexDigits},
		{hexDigits, Pinned, "sha256:" + hexDigits},
		{hexDigits[:12], Pinned, "sha256:" + hexDigits[:12]},
		{"sha256:" + hexDigits[:12], Pinned, "sha256:" + hexDigits[:12]},
		{"sha256:" + hexDigits[:11], Registry, "docker.io/library/sha256:" + hexDigits[:11]},
		{"oci:/a/b", OCILayout, "oci:/a/b"},
		{"oci:/a/../b/:v1", OCILayout, "oci:/b:v1"},
		{"oci:x:v1", OCILayout, "oci:" + filepath.Join(wd, "x") + ":v1"},
		{"oci-archive:/a.tar", OCIArchive, "oci-archive:/a.tar"},
		{"docker-archive:/a.tar:busybox:1", DockerArchive, "docker-archive:/a.tar:busybox:1"},
		{"dir:/a:b", Directory, "dir:/a:b"},
	} {
		got, err := Parse(c.in)
		if err != nil || got.Kind != c.kind || got.Full != c.full || got.Given != c.in {
			t.Errorf("Parse(%q) = %+v, %v; want %s %s", c.in, got, err, c.kind, c.full)
		}
	}
}

func TestParseParts(t *testing.T) {
	r := parsed(t, "docker-archive:/a.tar:busybox:1")
	if r.Path != "/a.tar" || r.Tag != "busybox:1" || r.Digest() != "" || !r.Stored() {
		t.Errorf("got %+v", r)
	}
	if d := parsed(t, "a/b@sha256:"+hexDigits).Digest(); d.Encoded() != hexDigits {
		t.Errorf("digest is %q", d)
	}
	if parsed(t, "host").Stored() || parsed(t, "dir:/").Stored() {
		t.Error("what is not an image is said to be stored")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ in, why string }{
		{"", "empty"},
		{"Debian", "upper-case"},
		{"Library/redis", "upper-case"},
		{"ghcr.io/Org/n", "upper-case"},
		{"docker.io/", "empty"},
		{"a/", `""`},
		{"/a", `""`},
		{"a//b", `""`},
		{"-a", `"-a"`},
		{"--store", `"--store"`},
		{"a..b/c", "host name"},
		{"o/a___b", `"a___b"`},
		{"o/a-", `"a-"`},
		{"o/a.-b", `"a.-b"`},
		{"a b", `"a b"`},
		{"a\n", `"a\n"`},
		{"a/\x00", `"\x00"`},
		{"é/b", `"é"`},
		{"../etc", "host name"},
		{"o/..", `".."`},
		{"o/n:", "tag"},
		{"o/n:-x", "tag"},
		{"o/n:" + strings.Repeat("a", 129), "tag"},
		{"o/n:a b", "tag"},
		{"reg:port/a", "host name"},
		{"reg:123456/a", "host name"},
		{"reg:/a", "host name"},
		{"[::1/a", "host name"},
		{"[]:5000/a", "host name"},
		{"-reg.io/a", "host name"},
		{"o/n@", "sha256"},
		{"o/n@md5:" + hexDigits, "only sha256"},
		{"o/n@sha256:" + hexDigits[:63], "64 lower-case"},
		{"o/n@sha256:" + strings.ToUpper(hexDigits), "64 lower-case"},
		{"o/n@sha256:" + hexDigits + "@sha256:" + hexDigits, "64 lower-case"},
		{strings.Repeat("a/", 300) + "a", "longer than 255"},
		{strings.Repeat("a", 2000), "longer than 1024"},
		{"docker-daemon:a:b", "not supported"},
		{"containers-storage:a", "not supported"},
		{"oci:", "empty path"},
		{"oci::tag", "empty path"},
		{"dir:", "empty path"},
		{"dir:/a\nb", "control character"},
	} {
		got, err := Parse(c.in)
		if err == nil {
			t.Errorf("Parse(%q) = %+v", c.in, got)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "parse image ") || !strings.Contains(text, c.why) {
			t.Errorf("Parse(%.20q): %v, want %q", c.in, err, c.why)
		}
		if len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%.20q): an error of %d bytes", c.in, len(err.Error()))
		}
	}
}

// FuzzParse checks the guarantees of Parse that its callers rely on.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"host", "python", "a/b:c@sha256:" + hexDigits, "[::1]:5/a", "oci:x:y", "dir:a", "docker://x/y", hexDigits, "Ä", "a:b/c:d", "a:0.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(r.Given); err != nil || again != r {
			t.Errorf("%q: parsed again it is %+v, %v; was %+v", s, again, err, r)
		}
		if strings.HasPrefix(r.Full, "-") || strings.ContainsAny(r.Full, "\x00\n") {
			t.Errorf("%q: full name %q", s, r.Full)
		}
		if r.Kind != Registry && r.Kind != Bare {
			return
		}
		full, err := Parse(r.Full)
		if err != nil || full.Full != r.Full || full.Kind != Registry {
			t.Errorf("%q: its full name %q is parsed as %+v, %v", s, r.Full, full, err)
		}
		if d := r.Digest(); d != "" {
			if _, err := oci.ParseDigest(string(d)); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		// A tag may have dots, and begins with a letter or digit.
		if name := r.Full[:strings.LastIndexAny(r.Full, ":@")]; strings.Contains(name, "..") || strings.ToLower(name) != name {
			t.Errorf("%q: full name %q", s, r.Full)
		}
	})
}

func TestAllowed(t *testing.T) {
	list := []string{"ghcr.io/org/*", "quay.io/a/b:1", "redis:7", "docker.io/me/*", "Bad/*", "*", "/*", "host", "oci:/x"}
	for _, c := range []struct {
		name string
		want bool
	}{
		{"host", true}, {"python", true}, {"alpine", true},
		{"ghcr.io/org/a", true}, {"ghcr.io/org/a/b:2", true}, {"ghcr.io/org/a@sha256:" + hexDigits, true},
		{"ghcr.io/organ/a", false}, {"ghcr.io/a/org/b", false},
		{"quay.io/a/b:1", true}, {"quay.io/a/b:2", false}, {"quay.io/a/b", false},
		{"docker.io/library/redis:7", true}, {"redis:8", false}, {"me/thing", true},
		{"debian:12", false}, {"docker.io/library/python:3.12", false},
		{"oci:/x", false}, {"dir:/", false}, {"docker-archive:/x", false}, {"mine", false}, {hexDigits, false},
	} {
		got, reason := parsed(t, c.name).Allowed(list)
		if got != c.want || reason == "" {
			t.Errorf("Allowed(%q) = %v, %q", c.name, got, reason)
		}
	}
}

// TestPermitted checks that images made here can be allowed, and are never looked for at a registry.
func TestPermitted(t *testing.T) {
	list := []string{"local/*", "ghcr.io/org/*", "redis:7", "mine", "Bad/*", "*", "/*", "oci:/x"}
	for _, c := range []struct {
		name       string
		ok, stored bool
	}{
		{"local/tool", true, true}, {"local/a/b:2", true, true}, {"docker.io/local/tool:1", true, true}, {"locale/tool", false, false},
		{"ghcr.io/local/x", false, false}, {"ghcr.io/org/local/x", true, false}, {"redis:7", true, false}, {"python", true, false},
		{"mine", true, false}, {"theirs", false, false}, {"oci:/x", false, false}, {"", false, false}, {"dir:/", false, false},
	} {
		if ok, stored := Permitted(c.name, list); ok != c.ok || stored != c.stored {
			t.Errorf("%q: %v %v", c.name, ok, stored)
		}
	}
	if got := strings.Join(Entries(list), " "); got != "local/* ghcr.io/org/* redis:7 mine" {
		t.Errorf("%q", got)
	}
}

func TestCatalogue(t *testing.T) {
	for _, c := range catalogue {
		r := parsed(t, c.name)
		if c.full != "" && r.Full != parsed(t, c.full).Full {
			t.Errorf("%s stands for %q, which is not normalized", c.name, c.full)
		}
	}
	if Catalogue()[0] != "host" {
		t.Errorf("the catalogue starts with %q", Catalogue()[0])
	}
}

func TestDefault(t *testing.T) {
	if got := Default(func(string) string { return "" }); got != "host" {
		t.Errorf("the default is %q", got)
	}
	env := map[string]string{"DEMESNE_DEFAULT_IMAGE": "python"}
	if got := Default(func(k string) string { return env[k] }); got != "python" {
		t.Errorf("the default is %q", got)
	}
}

func parsed(t *testing.T, name string) Ref {
	t.Helper()
	ref, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestRecipeRefs checks the names of images that demesne builds. None of them is a reference to a registry.
func TestRecipeRefs(t *testing.T) {
	short, err := Parse("browser")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demesne/browser", "demesne/browser:latest", "docker.io/demesne/browser", "docker://demesne/browser", strings.TrimPrefix(short.Full, "docker.io/")} {
		if ref, err := Parse(name); err != nil || ref.Kind != Recipe || ref.Full != short.Full || !ref.Stored() {
			t.Errorf("%s: %+v, %v", name, ref, err)
		}
	}
	if ok, _ := short.Allowed(nil); !ok {
		t.Error("a model may not use a recipe")
	}
	with, err := ParseRecipe("browser", "PLAYWRIGHT=1.50.0")
	if r, args, ok := with.Recipe(); err != nil || !ok || r.Name != "browser" || len(args) != 1 || with.Full == short.Full {
		t.Errorf("with arguments: %+v, %v", with, err)
	}
	old, err := Parse("demesne/browser:0123456789ab")
	if _, _, ok := old.Recipe(); err != nil || old.Kind != Recipe || ok {
		t.Errorf("another tag: %+v, %v", old, err)
	}
	for _, name := range []string{"demesne/nothing", "demesne/browser/x", "demesne/browser@sha256:" + hexDigits} {
		if ref, err := Parse(name); err == nil {
			t.Errorf("%s: %+v", name, ref)
		}
	}
	if ref, err := Parse("registry.test/demesne/browser"); err != nil || ref.Kind != Registry {
		t.Errorf("another registry: %+v, %v", ref, err)
	}
}
