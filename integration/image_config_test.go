package integration

import (
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func read(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// TestImageCommand checks that an image runs the command that docker run would run.
func TestImageCommand(t *testing.T) {
	g := newGallery(t)
	const say = `for a; do printf "[%s]" "$a"; done`
	entry := []string{"/bin/sh", "-c", say, "entry"}
	g.push("both:1", v1.Config{Entrypoint: entry, Cmd: []string{"cmd", "a b"}}, g.busybox())
	g.push("cmd:1", v1.Config{Cmd: []string{"/bin/sh", "-c", say, "x", "only cmd"}}, g.busybox())
	g.push("none:1", v1.Config{}, g.busybox())
	for _, c := range []struct {
		image string
		args  []string
		want  string
	}{
		{"both:1", nil, "[cmd][a b]"},
		{"both:1", []string{"--", "mine", ""}, "[mine][]"},
		{"both:1", []string{"--entrypoint", "/bin/echo"}, "\n"},
		{"both:1", []string{"--entrypoint", "/bin/echo", "--", "e"}, "e\n"},
		{"both:1", []string{"-c", "echo shell"}, "shell\n"},
		{"cmd:1", nil, "[only cmd]"},
		{"cmd:1", []string{"--", "/bin/echo", "e"}, "e\n"},
		{"none:1", []string{"--", "echo", "found in PATH"}, "found in PATH\n"},
	} {
		if r := g.do(append([]string{"run", "--image", g.reg.Ref(c.image)}, c.args...)...); r.code != 0 || r.stdout != c.want {
			t.Errorf("%s %q: %+v, want %q", c.image, c.args, r, c.want)
		}
	}
	g.told(t, "command", "run", "--image", g.reg.Ref("none:1"))
	if r := g.do("run", "--image", g.reg.Ref("none:1"), "--", "nosuch"); r.code != 127 {
		t.Errorf("a missing command: %+v", r)
	}
}

func TestImageEnvironment(t *testing.T) {
	g := newGallery(t)
	g.push("env:1", v1.Config{Env: []string{"PATH=/bin:/opt/bin", "A=image", "B=image", "EMPTY=", "SPACE=a b"}, WorkingDir: "/made/for/it", Cmd: []string{"env"}}, g.busybox())
	ref := g.reg.Ref("env:1")
	env := strings.Split(g.ok("run", "--image", ref, "--env", "B=mine"), "\n")
	for _, want := range []string{"PATH=/bin:/opt/bin", "A=image", "B=mine", "EMPTY=", "SPACE=a b", "HOME=/root"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %q in %q", want, env)
		}
	}
	if strings.Contains(strings.Join(env, "\n"), canary) {
		t.Errorf("the caller's environment passed: %q", env)
	}
	if got := g.inside(ref, "pwd; touch x"); got != "/made/for/it\n" {
		t.Errorf("the image's workdir: %q", got)
	}
	if got := g.inside(ref, "pwd", "--workdir", "/tmp"); got != "/tmp\n" {
		t.Errorf("--workdir: %q", got)
	}
}

// TestImageUser checks USER in every form that docker accepts, looked up in the image.
func TestImageUser(t *testing.T) {
	needIDs(t)
	g := newGallery(t)
	for user, want := range map[string]string{
		"": "0:0:0:/root", "root": "0:0:0:/root", "alice": "1000:1000:1000 50:/home/alice", "1000": "1000:1000:1000 50:/home/alice",
		"alice:staff": "1000:50:50:/home/alice", "1000:50": "1000:50:50:/home/alice", "4242": "4242:0:0:/", "4242:4343": "4242:4343:4343:/",
	} {
		g.push("user:1", v1.Config{User: user, Env: []string{"PATH=/bin"}}, g.busybox())
		const say = "echo $(id -u):$(id -g):$(id -G):$HOME"
		if got := strings.TrimSpace(g.inside(g.reg.Ref("user:1"), say, "--pull", "always")); got != want {
			t.Errorf("USER %q: %s, want %s", user, got, want)
		}
		if got := g.inside(g.reg.Ref("user:1"), "id -u", "--user", "0"); got != "0\n" {
			t.Errorf("--user 0 over USER %q: %q", user, got)
		}
	}
	for _, user := range []string{"nosuch", "alice:nosuch", "-1", "4294967296", "a:b:c"} {
		g.push("user:1", v1.Config{User: user}, g.busybox())
		g.told(t, user, "run", "--pull", "always", "--image", g.reg.Ref("user:1"), "--", "true")
	}
}

// TestImageUserOneID checks USER with a single id: every user is 0, no operation fails because of it, and the
// receipt says so.
func TestImageUserOneID(t *testing.T) {
	g := newGallery(t).oneID(t)
	g.push("user:1", v1.Config{User: "alice", Env: []string{"PATH=/bin"}, Cmd: []string{"true"}}, g.busybox())
	p := g.parse(g.do("run", "--json", "--image", g.reg.Ref("user:1"), "-c", "id -u; touch /tmp/f && chown 1000:50 /tmp/f && echo chowned"))
	if p.Stdout != "0\nchowned\n" || p.Receipt.Level == "full" {
		t.Errorf("USER alice with one id: %+v", p)
	}
	said := slices.ContainsFunc(p.Receipt.Layers, func(l layer) bool {
		return l.Name == "user" && l.Status != "held" && l.Why != ""
	})
	if !said {
		t.Errorf("no layer says so: %+v", p.Receipt.Layers)
	}
	const warning = "the image's user 1000:1000 is not mapped here"
	for _, verb := range [][]string{{"run"}, {"create", "--name", "box"}} {
		if r := g.do(append(verb, "--image", g.reg.Ref("user:1"))...); !strings.Contains(r.stderr, warning) {
			t.Errorf("%q: %+v", verb, r)
		}
	}
	g.ok("rm", "box")
	if r := g.do("run", "--user", "0", "--image", g.reg.Ref("user:1"), "-c", "true"); strings.Contains(r.stderr, "mapped") {
		t.Errorf("with --user 0: %+v", r)
	}
}

// TestImageBare checks images that lack nearly everything.
func TestImageBare(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		program := g.busybox()[6].Body
		g.push("bare:1", v1.Config{Entrypoint: []string{"/busybox"}, Cmd: []string{"sh", "-c", "id -u; pwd; echo x > /tmp/f && /busybox cat /tmp/f; /busybox grep -c localhost /etc/hosts; test -c /dev/null && test -d /proc/self && echo kernel"}},
			[]fixture.Entry{fixture.Mode("busybox", program, 0o755)})
		ref := g.reg.Ref("bare:1")
		r := g.do("run", "--image", ref)
		if got := strings.Fields(r.stdout); r.code != 0 || len(got) != 5 || got[0] != "0" || got[1] != "/workspace" || got[2] != "x" || got[4] != "kernel" {
			t.Errorf("a single program: %+v", r)
		}
		if r := g.do("run", "--image", ref, "-c", "true"); r.code != 127 || !strings.Contains(r.stderr, "/bin/sh") {
			t.Errorf("-c without a shell: %+v", r)
		}
		g.push("empty:1", v1.Config{Cmd: []string{"/none"}})
		if r := g.do("run", "--image", g.reg.Ref("empty:1")); r.code != 127 {
			t.Errorf("an image of no layer: %+v", r)
		}
	})
}

// TestImageOddPlaces checks that the runner creates its mount points even where the image has other files there,
// and follows no link out of the image.
func TestImageOddPlaces(t *testing.T) {
	const try = `test -c /dev/null && test -r /proc/self/stat && test -d /sys/class && echo x > /tmp/x && cat /in/data && touch /out/x && test -w /workspace &&
		cat /etc/hosts /etc/resolv.conf > /dev/null && ls -d /bin/sh /bin/x 2>/dev/null; true`
	places := []string{"dev", "proc", "sys", "tmp", "in", "out", "workspace", "etc/resolv.conf", "etc/hosts", "etc/hostname"}
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		for kind, make := range map[string]func(place string) fixture.Entry{
			"link up":       func(p string) fixture.Entry { return fixture.Link(p, "../../../../../../tmp") },
			"dangling link": func(p string) fixture.Entry { return fixture.Link(p, "/nosuch/place") },
			"loop":          func(p string) fixture.Entry { return fixture.Link(p, "/"+p) },
			"file":          func(p string) fixture.Entry { return fixture.File(p, "file\n") },
			"device link":   func(p string) fixture.Entry { return fixture.Link(p, "/dev/null") },
			"proc link":     func(p string) fixture.Entry { return fixture.Link(p, "/proc/self/root/bin") },
		} {
			odd := g.busybox()
			odd = slices.DeleteFunc(odd, func(e fixture.Entry) bool { return e.Name == "tmp/" })
			for _, p := range places {
				odd = append(odd, make(p))
			}
			g.push("odd:1", v1.Config{Env: []string{"PATH=/bin"}}, odd)
			r := g.do("run", "--pull", "always", "--image", g.reg.Ref("odd:1"), "--in", g.file("data", "data\n", 0o644), "-c", try)
			if r.stdout != "data\n/bin/sh\n" {
				t.Errorf("%s: %+v", kind, r)
			}
		}
	})
}

// TestImageLayers checks whiteouts, opaque directories, changing file types, hard links and modes in layers.
func TestImageLayers(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		g.push("layers:1", v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"sh", "-c", `cd /d; find . -type f -o -type d | grep -v '^.$' | while read f; do echo "$f"; done; cat turned/into turned2 keep; stat -c '%h' one; stat -c %a sticky; stat -c %Y one`}},
			g.busybox(),
			[]fixture.Entry{fixture.Dir("d"), fixture.File("d/gone", "x"), fixture.Dir("d/hidden"), fixture.File("d/hidden/a", "x"), fixture.File("d/turned", "x"),
				fixture.Dir("d/turned2"), fixture.File("d/turned2/x", "x"), fixture.File("d/keep", "kept\n")},
			[]fixture.Entry{fixture.Gone("d/gone"), fixture.Dir("d/hidden"), fixture.File("d/hidden/.wh..wh..opq", ""), fixture.File("d/hidden/b", ""), fixture.Gone("d/turned"),
				fixture.Dir("d/turned"), fixture.File("d/turned/into", "dir\n"), fixture.File("d/turned2", "file\n"), fixture.File("d/one", "1"), fixture.Hard("d/two", "d/one"),
				fixture.Mode("d/sticky", "", 0o1640)})
		want := "./hidden ./hidden/b ./keep ./one ./sticky ./turned ./turned/into ./turned2 ./two"
		lines := strings.Split(g.ok("run", "--image", g.reg.Ref("layers:1")), "\n")
		found := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, "./") })
		slices.Sort(found)
		if got := strings.Join(found, " "); got != want {
			t.Errorf("tree: %s\nwant: %s", got, want)
		}
		if rest := strings.Join(lines[len(found):], " "); rest != "dir file kept 2 1640 0 " {
			t.Errorf("contents, links, mode and time: %q", rest)
		}
	})
}

// TestImageManyLayers checks an image of forty layers, each over the one before.
func TestImageManyLayers(t *testing.T) {
	g := newGallery(t)
	layers := [][]fixture.Entry{g.busybox()}
	for i := range 39 {
		n := string(rune('a' + i%26))
		layers = append(layers, []fixture.Entry{fixture.File("etc/top", strings.Repeat(n, i+1)), fixture.File("l/"+strings.Repeat(n, i+1), n)})
	}
	g.push("many:1", v1.Config{Env: []string{"PATH=/bin"}}, layers...)
	if got := g.inside(g.reg.Ref("many:1"), "ls /l | wc -l; wc -c < /etc/top"); got != "39\n39\n" {
		t.Errorf("40 layers: %q", got)
	}
}
