package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// storySource is Twee for a format of which the image has another version.
const storySource = `:: StoryTitle
The cellar

:: StoryData
{"ifid": "D674C58C-DEFA-4F70-B7A2-27742230C0FC", "format": "SugarCube", "format-version": "2.37.3", "start": "Start"}

:: Start
You are in a cellar. [[Go up->Stairs]]

:: Stairs
The end.
`

// TestRecipeTwine compiles stories for each format, in a sandbox without a network.
func TestRecipeTwine(t *testing.T) {
	heavy(t)
	g := newGallery(t)
	if os.Getuid() != 0 {
		g.oneID(t)
	}
	src, out := g.mkdir("story"), g.mkdir("out")
	g.file("story/a.twee", storySource, 0o644)
	r := g.do("run", "--image", "twine", "--in", src, "--out", out, "-c", `set -e
twee -o /out/story.html /in/story
for f in harlowe harlowe-2 chapbook snowman paperthin sugarcube-1; do twee -f $f /in/story > /out/$f.html; done
printf ':: Start\nhi\n' | tee x.twee > /dev/null
twee x.twee | grep -o '<tw-passagedata pid="1"' | wc -l
twee -f none x.twee || echo refused`)
	if r.code != 0 || r.stdout != "1\nrefused\n" || strings.Count(r.stderr, "building demesne/") != 3 ||
		!strings.Contains(r.stderr, "sugarcube 2.37.3 is not here: using 2.31.1") || !strings.Contains(r.stderr, `no story format "none" (there are chapbook-1.2.0, `) {
		t.Fatalf("twee: %+v", r)
	}
	for name, own := range map[string]string{"story": "SugarCube", "harlowe": "tw-story", "harlowe-2": "tw-story", "chapbook": "Chapbook", "snowman": "window.story", "paperthin": "passage", "sugarcube-1": "SugarCube"} {
		html := readFile(t, out+"/"+name+".html")
		if !strings.Contains(html, "You are in a cellar.") || !strings.Contains(html, "<title>The cellar") || !strings.Contains(html, own) {
			t.Errorf("%s: %d bytes without the story", name, len(html))
		}
	}
}

// TestRecipeTools uses the images of tools in one store, where they share what is below them.
func TestRecipeTools(t *testing.T) {
	heavy(t)
	g := newGallery(t)
	for name, f := range map[string]func(*testing.T, *gallery){
		"agents": recipeAgents, "media": recipeMedia, "webgamedev": recipeWebgamedev, "jupyter": recipeJupyter,
	} {
		t.Run(name, func(t *testing.T) { f(t, g) })
	}
}

// mediaScript converts video, images and sound, once with each program.
const mediaScript = `set -e; cd /out
ffmpeg -v error -f lavfi -i testsrc=duration=2:size=320x240:rate=25 -f lavfi -i sine=frequency=440:duration=2 -c:v mpeg2video -c:a mp2 a.mpg
ffmpeg -v error -i a.mpg -c:v libx264 -pix_fmt yuv420p -c:a aac b.mp4
ffprobe -v error -show_entries stream=codec_name,width -of csv=p=0 b.mp4
ffmpeg -v error -i a.mpg -frames:v 1 a.png
magick a.png -resize 50% a.jpg; identify -format '%m %wx%h\n' a.jpg
vips resize a.png v.webp 0.25; vipsheader -f width v.webp
sox -n -r 44100 -c 2 s.wav synth 1 sine 440; sox s.wav -r 8000 s.flac; soxi -t s.flac; soxi -r s.flac; sox s.wav s.mp3
exiftool -s3 -ImageSize a.jpg; mediainfo --Inform="Video;%Format%" b.mp4
echo '<svg xmlns="http://www.w3.org/2000/svg" width="50" height="20"><text y="15">hi</text></svg>' > x.svg
rsvg-convert x.svg -o x.png; cwebp -quiet x.png -o x.webp; optipng -quiet x.png; jpegoptim -q a.jpg
magick a.png -units PixelsPerInch -density 72 p.pdf; gs -q -dNOPAUSE -dBATCH -sDEVICE=png16m -o p.png p.pdf; identify -format '%m\n' p.png`

// recipeMedia transcodes a video, and converts images and sound, in a sandbox without a network.
func recipeMedia(t *testing.T, g *gallery) {
	if got := g.inside("media", mediaScript); got != "h264,320\naac\nJPEG 160x120\n80\nflac\n8000\n160x120\nAVC\nPNG\n" {
		t.Errorf("media: %q", got)
	}
}

// recipeWebgamedev builds the game of the template in the workspace, without a network.
func recipeWebgamedev(t *testing.T, g *gallery) {
	out := g.mkdir("out")
	g.ok("run", "--image", "webgamedev", "--out", out, "-c", "cp -r /opt/game-template /workspace/game && cd /workspace/game && npm run build && mv dist /out/")
	made, err := filepath.Glob(out + "/dist/assets/*.js")
	if err != nil || len(made) != 1 || !strings.Contains(readFile(t, made[0]), "Phaser") || !strings.Contains(readFile(t, out+"/dist/index.html"), filepath.Base(made[0])) {
		t.Errorf("the game is %q, %v", made, err)
	}
	if r := g.do("run", "--image", "webgamedev", "-c", "cp -r /opt/game-template game && cd game && echo 'const n: number = \"x\";' >> src/main.ts && npm run build"); r.code == 0 || !strings.Contains(r.stdout, "not assignable to type 'number'") {
		t.Errorf("a wrong type: %+v", r)
	}
}

// kernelScript starts a kernel by jupyter-client, and has it execute code.
const kernelScript = `import sys
from jupyter_client.manager import start_new_kernel
name, code = sys.argv[1:]
km, kc = start_new_kernel(kernel_name=name, startup_timeout=120)
said = []
def hook(msg):
    c = msg["content"]
    said.append(c["text"] if msg["msg_type"] == "stream" else c.get("data", {}).get("text/plain", ""))
r = kc.execute_interactive(code, timeout=120, output_hook=hook)
print(name, r["content"]["status"], "".join(said).strip())
kc.stop_channels()
km.shutdown_kernel(now=True)
del kc, km
`

const figureScript = `import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt, numpy as np, pandas as pd
pd.DataFrame({"a": np.arange(10) ** 2}).plot()
plt.savefig("/out/python.png")
`

// recipeJupyter plots figures, and has each kernel answer a request, in a sandbox without a network.
func recipeJupyter(t *testing.T, g *gallery) {
	out := g.mkdir("out")
	got := g.ok("run", "--image", "jupyter", "--in", g.file("kernel.py", kernelScript, 0o644), "--in", g.file("figure.py", figureScript, 0o644), "--out", out, "-c", `set -e
python3 /in/kernel.py python3 'import pandas; print(6 * 7)'
python3 /in/kernel.py ir 'cat(6 * 7)'
python3 /in/kernel.py jslab 'console.log(6 * 7)'
python3 /in/kernel.py tslab 'const n: number = 42; console.log(n)'
python3 /in/figure.py
python3 -m pip --version > /dev/null
Rscript -e 'png("/out/r.png"); plot(1:3)'`)
	if want := "python3 ok 42\nir ok 42\njslab ok 42\ntslab ok 42\n"; got != want {
		t.Errorf("kernels: %q, want %q", got, want)
	}
	check := g.file("check.py", readFile(t, "../server/e2b/testdata/check.py"), 0o644)
	results := g.file("results.py", readFile(t, "../server/e2b/results.py"), 0o644)
	if got := g.ok("run", "--image", "jupyter", "--in", check, "--in", results, "--", "python3", "/in/check.py", "/in/results.py"); got != "the results are right\n" {
		t.Errorf("what E2B's kernels add to results: %q", got)
	}
	for _, name := range []string{"python.png", "r.png"} {
		if b := readFile(t, out+"/"+name); !strings.HasPrefix(b, "\x89PNG") || len(b) < 2000 {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
}

// recipeAgents runs agents whose programs this machine lacks: demesne builds their images, and says so. An image of a
// program that the machine has is one of that version.
func recipeAgents(t *testing.T, g *gallery) {
	m := &fixture.Model{Script: fixture.Steps(shell("git --version > /out/made && node --version >> /out/made"), fixture.Answer{Text: "zebra finished"})}
	url, stop := m.Start()
	t.Cleanup(stop)
	g.hostWithoutAgents(url)
	for model, name := range map[string]string{"sonnet": "claude-code", "gpt-5.5": "codex"} {
		out := g.mkdir(name)
		r := g.do("agent", "run", "--model", model, "--out", out, "make it")
		if r.code != 0 || r.stdout != "zebra finished\n" || !strings.Contains(r.stderr, "building demesne/"+name+", once: about ") {
			t.Fatalf("%s: %+v", name, r)
		}
		if made := readFile(t, out+"/made"); !strings.HasPrefix(made, "git version ") || !strings.Contains(made, "\nv2") {
			t.Errorf("%s made %q", name, made)
		}
	}
	proj := g.mkdir("h/proj")
	t.Cleanup(func() { os.RemoveAll(proj); os.RemoveAll(g.home + "/.demesne/agents") })
	cmd := g.cli("agent", "claude", "-p", "make it")
	cmd.Dir = proj
	if r := g.finish(cmd); r.code != 0 || !strings.Contains(r.stdout, "zebra") || strings.Contains(r.stderr, "building") {
		t.Errorf("at a terminal: %+v", r)
	}
	for name, version := range map[string]string{"claude": "2.1.197 (Claude Code)\n", "codex": "codex-cli 0.169.0\n"} {
		image := map[string]string{"claude": "demesne/claude-code", "codex": "demesne/codex"}[name]
		if got := g.ok("run", "--image", image, "--", name, "--version"); got != version {
			t.Errorf("%s: %q", name, got)
		}
	}
	g.mkdir("npm/node_modules/@anthropic-ai/claude-code")
	g.file("npm/node_modules/@anthropic-ai/claude-code/package.json", `{"version": "2.1.330"}`, 0o644)
	g.file("npm/node_modules/@anthropic-ai/claude-code/claude", "#!/bin/sh\n", 0o755)
	g.extra = append(g.extra, "PATH="+g.dir+"/npm/node_modules/@anthropic-ai/claude-code:/usr/bin:/bin")
	if got := g.ok("run", "--image", "demesne/claude-code", "--", "claude", "--version"); got != "2.1.330 (Claude Code)\n" {
		t.Errorf("beside an installation: %q", got)
	}
}
