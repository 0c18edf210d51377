package integration

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// withMaps runs f twice: once the user's first commands have subordinate ids and the later ones a single id, and once the
// other way round. Both have the same image store and sandboxes. first and second set the id map of the next commands.
func withMaps(t *testing.T, f func(t *testing.T, g *gallery, first, second func(), many bool)) {
	setpriv := program(t, "setpriv")
	for _, c := range []struct {
		name string
		many bool
	}{{"subordinate ids first", true}, {"one id first", false}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGallery(t)
			g.subordinate(t)
			many := g.cli
			one := func(args ...string) *exec.Cmd {
				return g.command(setpriv, append([]string{"--no-new-privs", bin + "/demesne"}, args...)...)
			}
			t.Cleanup(func() { g.cli = many }) // only these ids can remove every file
			first, second := func() { g.cli = many }, func() { g.cli = one }
			if !c.many {
				first, second = second, first
			}
			first()
			f(t, g, first, second, c.many)
		})
	}
}

// subordinate makes the gallery's user an ordinary one with subordinate ids.
func (g *gallery) subordinate(t *testing.T) {
	t.Helper()
	program(t, "newuidmap")
	if os.Getuid() != 0 {
		return
	}
	text, _ := os.ReadFile("/etc/subuid")
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		u, err := user.Lookup(name)
		if err != nil || u.Uid == "0" || u.Uid != u.Gid {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		g.as(uid)
		os.Chown(g.store, uid, uid)
		return
	}
	need(t, false, "an ordinary user with subordinate ids")
}

// owned pushes an image with files that only other ids can read or remove, and returns its reference.
func (g *gallery) owned(repo string) string {
	g.Helper()
	hers := []fixture.Entry{
		fixture.Owned(fixture.Mode("hers", "hers "+repo+"\n", 0o600), 1000), fixture.Owned(fixture.Dir("locked"), 1000),
		fixture.Owned(fixture.File("locked/f", "x"), 4242),
	}
	hers[1].Mode = 0o700
	g.push(repo, v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), hers)
	return g.reg.Ref(repo)
}

// TestImageMaps checks that an image that was unpacked for one id map is usable with another, without the registry, and
// that a garbage collection with subordinate ids removes both copies.
func TestImageMaps(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), many bool) {
		ref := g.owned("demo:1")
		want := "hers demo:1\n"
		if got := g.inside(ref, "cat /hers"); got != want {
			t.Errorf("with the first map: %q", got)
		}
		once := g.listed()[0].Unpacked
		g.reg.Close()
		second()
		if got := g.inside(ref, "cat /hers", "--pull", "never"); got != want {
			t.Errorf("with the second map: %q", got)
		}
		first()
		if got := g.inside(ref, "cat /hers", "--pull", "never"); got != want {
			t.Errorf("with the first map again: %q", got)
		}
		if twice := g.listed()[0].Unpacked; twice < 2*once-once/4 {
			t.Errorf("unpacked for two maps: %d bytes, for one: %d", twice, once)
		}
		for _, as := range []func(){first, second} {
			as()
			g.ok("images", "check")
			g.ok("gc")
		}
		if n := len(g.trees()); n != 4 {
			t.Errorf("%d trees, want two layers for two maps", n)
		}
		g.removedUnder(t, ref, first, second, many)
	})
}

// removedUnder removes an image under the second map, and its trees under both.
func (g *gallery) removedUnder(t *testing.T, ref string, first, second func(), many bool) {
	t.Helper()
	second()
	g.ok("rmi", ref)
	r := g.do("gc")
	left := strings.Contains(r.stderr, "another id map stay in "+g.store+"/trees/map-")
	if r.code != 0 || left != many { // the second has one id
		t.Errorf("gc: %+v", r)
	}
	first()
	r = g.do("gc")
	if r.code != 0 || strings.Contains(r.stderr, "another id map") || len(g.trees()) > 0 {
		t.Errorf("gc with both maps: %+v, left %q", r, g.trees())
	}
}

// TestImageMapsTogether checks commands of two id maps on one store at the same time.
func TestImageMapsTogether(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), _ bool) {
		a, b := g.owned("a:1"), g.owned("b:1")
		one := g.cli
		second()
		other := g.cli
		var wg sync.WaitGroup
		for _, cli := range []func(...string) *exec.Cmd{one, other, one, other} {
			wg.Go(func() {
				for _, ref := range []string{a, b} {
					r := g.finish(cli("run", "--image", ref, "-c", "cat /hers"))
					if r.code != 0 || !strings.HasSuffix(ref, strings.TrimSpace(strings.TrimPrefix(r.stdout, "hers "))) {
						t.Errorf("%s: %+v", ref, r)
					}
				}
			})
			wg.Go(func() {
				if r := g.finish(cli("gc")); r.code != 0 {
					t.Errorf("gc: %+v", r)
				}
			})
		}
		wg.Wait()
	})
}

// TestImageMapsSandbox checks a persistent sandbox that was made under another id map. While it is live it is usable. A
// stopped one is refused with the reason, and commands of its own map are not affected.
func TestImageMapsSandbox(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), many bool) {
		ref := g.owned("demo:1")
		id := strings.TrimSpace(g.ok("create", "--image", ref))
		g.ok("exec", id, "-c", "echo kept > /root/f; chown 1000 /root/f; chmod 600 /root/f")
		second()
		g.inside(ref, "true")
		if got := g.ok("exec", id, "-c", "cat /root/f"); got != "kept\n" {
			t.Errorf("a live sandbox: %q", got)
		}
		g.ok("commit", id, "local/live")
		if got := g.inside("local/live", "cat /root/f"); got != "kept\n" {
			t.Errorf("the image of a live sandbox: %q", got)
		}
		fork := strings.TrimSpace(g.ok("fork", id))
		g.ok("stop", id)
		g.eventuallyAlone()
		g.ok("gc", "--all")
		for _, args := range [][]string{{"exec", id, "--", "true"}, {"exec", fork, "--", "true"}, {"diff", id}, {"commit", id, "local/stopped"}, {"cp", id + ":/root/f", g.dir + "/f"}} {
			g.told(t, "id map", args...)
		}
		late := strings.TrimSpace(g.ok("fork", id))
		first()
		for _, sandbox := range []string{id, fork, late} {
			if got := g.ok("exec", sandbox, "-c", "cat /root/f /hers"); got != "kept\nhers demo:1\n" {
				t.Errorf("under its own map: %q", got)
			}
			g.ok("stop", sandbox)
		}
		g.ok("commit", id, "local/stopped")
		g.eventuallyAlone()
		second()
		if got := g.inside("local/stopped", "cat /root/f"); got != "kept\n" {
			t.Errorf("the image of a stopped sandbox: %q", got)
		}
		first()
		if got := g.inside("local/stopped", "cat /root/f; stat -c %u /root/f"); got != "kept\n"+owner(many) { // one id records no owner
			t.Errorf("the image of a stopped sandbox, under its map: %q", got)
		}
		for _, sandbox := range []string{id, fork, late} {
			g.do("rm", sandbox)
		}
		if all := g.ok("ls", "-q"); all != "" {
			t.Errorf("sandboxes: %q", all)
		}
	})
}

// TestImageMapsSandboxRemoved checks that a sandbox can be removed under another id map. The files that this map cannot
// remove are reported, and do not stop a garbage collection; one under the sandbox's map removes them.
func TestImageMapsSandboxRemoved(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), many bool) {
		id := strings.TrimSpace(g.ok("create", "--image", g.owned("demo:1")))
		g.ok("exec", id, "-c", "mkdir /root/d; touch /root/d/f; chmod 700 /root/d; chown -R 1000 /root/d")
		g.ok("stop", id)
		g.eventuallyAlone()
		second()
		left := "files of another id map are left"
		if many {
			g.told(t, left, "rm", id)
		} else { // every id of the sandbox is among the subordinate ids
			g.ok("rm", id)
		}
		if r := g.do("gc", "--all"); r.code != 0 || many != strings.Contains(r.stderr, left) {
			t.Errorf("gc after rm: %+v", r)
		}
		first()
		if r := g.do("gc", "--all"); r.code != 0 || strings.Contains(r.stderr, left) {
			t.Errorf("gc under the map of the sandbox: %+v", r)
		}
	})
}

// owner is stat's output for a file of the image's user 1000. With one id root has every file.
func owner(many bool) string {
	if many {
		return "1000\n"
	}
	return "0\n"
}

// eventuallyAlone waits for the end of every runner.
func (g *gallery) eventuallyAlone() {
	g.Helper()
	eventually(g, "every process to be gone", func() bool { return len(descendants()) == 0 })
}

// TestImageMapsBuild checks builds under two id maps: each uses the layers that the other made, and a cache of its own.
func TestImageMapsBuild(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), many bool) {
		ref := g.owned("demo:1")
		g.mkdir("ctx")
		text := "FROM " + ref + " AS one\n" +
			"RUN --mount=type=cache,target=/c echo x >> /c/n && mkdir -p /c/d && chown 1000 /c/d && chmod 700 /c/d && echo y > /c/d/f && cp /c/n /n && chown 1000 /n && chmod 600 /n\n" +
			"FROM " + ref + "\nCOPY --from=one --chown=1000 /n /n\nRUN cat /n > /m\n"
		g.file("ctx/Containerfile", text, 0o644)
		for i, as := range []func(){first, second, first} {
			as()
			flags := []string{"build", "-t", "local/built", g.dir + "/ctx"}
			if i < 2 {
				flags = append(flags, "--no-cache")
			}
			g.ok(flags...)
			if got := g.inside("local/built", "cat /n /m; stat -c %u /n"); got != "x\nx\n"+owner(many == (i != 1)) {
				t.Errorf("build %d: %q", i, got)
			}
		}
		second()
		r := g.do("gc", "--all", "--build")
		if r.code != 0 || many != strings.Contains(r.stderr, "another id map") {
			t.Errorf("gc: %+v", r)
		}
	})
}

// TestImageMapsLiveRunner checks that an image is unpacked for the map of the live runner, although a new one would have
// another: newuidmap was installed or removed since the runner started. Both callers have the same rights, so they share
// the runner.
func TestImageMapsLiveRunner(t *testing.T) {
	for name, first := range map[string]bool{"removed": true, "installed": false} {
		t.Run(name, func(t *testing.T) {
			g := newGallery(t)
			g.subordinate(t)
			plain, bare := g.extra, append(g.extra[:len(g.extra):len(g.extra)], "PATH="+g.mkdir("empty"))
			set := func(installed bool) {
				if g.extra = bare; installed {
					g.extra = plain
				}
			}
			t.Cleanup(func() { set(true) })
			ref := g.owned("demo:1")
			set(first)
			live := strings.TrimSpace(g.ok("create", "--image", "host"))
			set(!first)
			for _, args := range [][]string{{"pull", ref}, {"gc", "--blobs"}} {
				g.ok(args...)
			}
			if got := g.inside(ref, "cat /hers"); got != "hers demo:1\n" {
				t.Errorf("in a live runner: %q", got)
			}
			g.reg.Close()
			g.ok("rm", live)
			g.eventuallyAlone()
			if got := g.inside(ref, "cat /hers", "--pull", "never"); got != "hers demo:1\n" {
				t.Errorf("in a new runner: %q", got)
			}
			set(true)
			g.ok("gc")
		})
	}
}

// TestImageMapsBlobs checks that gc --blobs drops no blob of a layer that the caller's map lacks, and that an imported
// image runs under both maps.
func TestImageMapsBlobs(t *testing.T) {
	withMaps(t, func(t *testing.T, g *gallery, first, second func(), _ bool) {
		ref := g.owned("demo:1")
		tars := g.mkdir("tars")
		g.ok("pull", ref)
		g.ok("save", "-o", tars+"/demo.tar", ref)
		second()
		g.ok("gc", "--blobs")
		if all := g.listed(); all[0].Dropped != 0 {
			t.Errorf("dropped under the other map: %+v", all)
		}
		g.ok("import", tars+"/demo.tar", "local/imported")
		g.inside(ref, "true")
		first()
		g.inside("local/imported", "cat /hers")
		g.ok("rmi", "local/imported")
		g.ok("gc", "--blobs")
		if all := g.listed(); all[0].Dropped == 0 {
			t.Errorf("not dropped: %+v", all)
		}
		g.reg.Close()
		for _, as := range []func(){first, second} {
			as()
			if got := g.inside(ref, "cat /hers"); got != "hers demo:1\n" {
				t.Errorf("without blobs: %q", got)
			}
		}
		first()
	})
}
