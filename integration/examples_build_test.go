package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// example runs a script of examples/ in a copy of its directory. change changes the copy first.
func (b *box) example(script string, change map[string]string, env ...string) result {
	b.Helper()
	from, dir := filepath.Join("../examples", filepath.Dir(script)), b.dir+"/example"
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(b.mkdir("example"), os.DirFS(from))); err != nil {
		b.Fatal(err)
	}
	for name, text := range change {
		b.file("example/"+name, text, 0o644)
	}
	cmd := b.command(filepath.Join(dir, filepath.Base(script)))
	cmd.Env = append(cmd.Env, append(env, "DEMESNE="+bin+"/demesne")...)
	return b.finish(cmd)
}

// check runs an example that must succeed, with this output.
func (b *box) check(t *testing.T, want, script string, env ...string) {
	t.Helper()
	if r := b.example(script, nil, env...); r.code != 0 || !regexp.MustCompile("^"+want+"$").MatchString(r.stdout) {
		t.Errorf("%s: exit %d\nstdout: %s\nstderr: %s", script, r.code, r.stdout, r.stderr)
	}
}

// hasProgram requires a program of this machine.
func hasProgram(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	need(t, err == nil, name)
}

// The outputs of the examples with a browser and with media.
const (
	rendered  = `<title>no network</title>\nrows: 6\non the host: PNG, [0-9]{4,} bytes\n`
	converted = `vp8\nopus\n"?matroska,webm"?\nposter: [0-9]{4,} bytes of JPEG\nrefused: exit [0-9]+\n`
)

// TestExampleRenderPage renders a page with this machine's Chromium.
func TestExampleRenderPage(t *testing.T) {
	hasProgram(t, "chromium")
	newBox(t).check(t, rendered, "render-page/cli.sh", "IMAGE=host")
}

// TestExampleConvertMedia converts a video with this machine's ffmpeg.
func TestExampleConvertMedia(t *testing.T) {
	hasProgram(t, "ffmpeg")
	newBox(t).check(t, converted, "convert-media/cli.sh", "IMAGE=host")
}

// TestRecipeExamples runs both with the images that demesne builds for them, which takes minutes: see make recipes.
func TestRecipeExamples(t *testing.T) {
	if !recipes() {
		t.Skip("downloads much: make recipes")
	}
	b := newGallery(t)
	b.ok("pull", "-q", "browser")
	b.check(t, rendered, "render-page/cli.sh")
	b.ok("pull", "-q", "media")
	b.check(t, converted, "convert-media/cli.sh")
}

// TestExampleCIBuild runs the CI job with a registry, and without.
func TestExampleCIBuild(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "ci", Password: "hunter2"})
	newSite(t, g)
	env := []string{"BASE=local/bb", "TAG=1"}
	g.check(t, "tests passed\nhello, CI\nsaved image.tar\n", "ci-build/job.sh", env...)
	g.ok("rmi", "local/greet:1")
	if out := g.ok("import", g.dir+"/example/image.tar", "local/greet:1"); !strings.Contains(out, "sha256:") {
		t.Errorf("image.tar: %s", out)
	}
	image := g.reg.Ref("team/greet")
	env = append(env, "IMAGE="+image, "REGISTRY_USER=ci", "REGISTRY_PASSWORD=hunter2")
	want := "tests passed\nhello, CI\npushed " + regexp.QuoteMeta(image) + "@(sha256:[0-9a-f]{64})\n"
	first := g.example("ci-build/job.sh", nil, env...)
	if first.code != 0 || !regexp.MustCompile("^"+want+"$").MatchString(first.stdout) {
		t.Fatalf("%+v", first)
	}
	g.ok("gc", "--all", "--build")
	newSite(t, g)
	if again := g.example("ci-build/job.sh", nil, env...); again.stdout != first.stdout {
		t.Errorf("the digest differs:\n%s\n%s", first.stdout, again.stdout)
	}
	g.ok("rmi", "local/greet:1")
	keys := fmt.Sprintf(`{"auths": {%q: {"auth": "Y2k6aHVudGVyMg=="}}}`, g.reg.Host) // ci:hunter2
	g.extra = append(g.extra, "REGISTRY_AUTH_FILE="+g.file("auth.json", keys, 0o600))
	if got := g.ok("run", "--image", image+":1", "--", "registry"); got != "hello, registry\n" {
		t.Errorf("%q", got)
	}
	if r := g.example("ci-build/job.sh", map[string]string{"test.sh": "exit 3\n"}, env...); r.code != 3 || r.stdout != "" {
		t.Errorf("a test that fails: %+v", r)
	}
}

// TestExampleCIFiles checks that the files for CI services run the script that TestExampleCIBuild runs, with its variables.
func TestExampleCIFiles(t *testing.T) {
	job := read("../examples/ci-build/job.sh")
	for _, name := range []string{"github.yml", "gitlab.yml"} {
		text := read("../examples/ci-build/" + name)
		if !strings.Contains(text, "./examples/ci-build/job.sh\n") || strings.Contains(text, "\t") {
			t.Errorf("%s does not run the job", name)
		}
		for _, variable := range []string{"IMAGE", "REGISTRY_USER", "REGISTRY_PASSWORD"} {
			if !strings.Contains(text, "    "+variable+": $") || !strings.Contains(job, variable) {
				t.Errorf("%s does not set %s", name, variable)
			}
		}
	}
}
