package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestImageGC checks that gc removes unused data, including trees owned by subordinate ids, and never the image
// of a sandbox.
func TestImageGC(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		used := []fixture.Entry{fixture.File("used", "used\n"), fixture.Owned(fixture.Mode("hers", "x", 0o600), 1000), fixture.Owned(fixture.Dir("locked"), 1000),
			fixture.Owned(fixture.File("locked/f", "x"), 4242)}
		used[2].Mode = 0o000
		base := g.busybox()
		g.push("used:1", v1.Config{Env: []string{"PATH=/bin"}}, base, used)
		g.push("idle:1", v1.Config{Env: []string{"PATH=/bin"}}, base, []fixture.Entry{fixture.Owned(fixture.Mode("idle", strings.Repeat("x", 100000), 0o600), 4343)})
		g.ok("pull", g.reg.Ref("used:1"))
		g.ok("pull", g.reg.Ref("idle:1"))
		id := strings.TrimSpace(g.ok("create", "--image", g.reg.Ref("used:1")))
		g.ok("gc") // no data is old enough
		if all := g.listed(); len(all) != 2 {
			t.Errorf("a gc that has nothing to do leaves %+v", all)
		}
		g.ok("gc", "--all")
		all := g.listed()
		if len(all) != 1 || !strings.Contains(strings.Join(all[0].Names, " "), "used:1") {
			t.Errorf("gc --all leaves %+v", all)
		}
		if n := len(g.trees()); n != 2 {
			t.Errorf("%d trees, want the two that are used", n)
		}
		if got := g.ok("exec", id, "--", "cat", "/used", "/etc/group"); !strings.HasPrefix(got, "used\n") {
			t.Errorf("the sandbox after gc --all: %q", got)
		}
		g.ok("stop", id)
		g.ok("gc", "--all")
		if got := g.ok("exec", id, "--", "cat", "/used"); got != "used\n" {
			t.Errorf("a sandbox of files alone, started again after gc --all: %q", got)
		}
		g.ok("rm", id)
	})
}

// TestImageGCByAge checks that --older-than counts from the last start of a sandbox on the image.
func TestImageGCByAge(t *testing.T) {
	g := newGallery(t)
	for _, n := range []string{"old:1", "new:1"} {
		g.push(n, v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), []fixture.Entry{fixture.File("name", n)})
		g.inside(g.reg.Ref(n), "true")
		week := time.Now().Add(-8 * 24 * time.Hour)
		for _, f := range names(g.store + "/used") {
			os.Chtimes(g.store+"/used/"+f, week, week)
		}
	}
	g.inside(g.reg.Ref("new:1"), "true")
	g.ok("gc", "--older-than", "168h")
	if all := g.listed(); len(all) != 1 || !strings.Contains(strings.Join(all[0].Names, " "), "new:1") {
		t.Errorf("gc --older-than a week leaves %+v", all)
	}
}

// TestImageGCInBetween checks that gc running concurrently breaks no other command.
func TestImageGCInBetween(t *testing.T) {
	g := newGallery(t)
	base := g.busybox()
	var refs []string
	for _, n := range []string{"a:1", "b:1", "c:1"} {
		g.push(n, v1.Config{Env: []string{"PATH=/bin"}}, base, []fixture.Entry{fixture.File("name", n)})
		refs = append(refs, g.reg.Ref(n))
	}
	stop := make(chan struct{})
	var collector, users sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				if r := g.do("gc", "--all"); r.code != 0 {
					t.Errorf("gc: %+v", r)
				}
			}
		}
	})
	for _, ref := range refs {
		users.Go(func() {
			for range 4 {
				if r := g.do("run", "--image", ref, "-c", "cat /name"); r.code != 0 || !strings.HasSuffix(ref, "/"+r.stdout) {
					t.Errorf("%s: %+v", ref, r)
				}
			}
		})
	}
	users.Wait()
	close(stop)
	collector.Wait()
	g.ok("images", "check")
}

// TestImageGCBlobs checks that a pulled image runs without its blobs and without the registry, and that save, export
// and commit fetch them again. An image that was made here keeps its blobs.
func TestImageGCBlobs(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		tars := t.TempDir()
		os.Chmod(tars, 0o777)
		os.Chmod(filepath.Dir(tars), 0o755)
		ref, img := g.simple("demo:1")
		g.ok("pull", ref)
		g.ok("export", "-o", tars+"/rootfs.tar", ref)
		g.ok("import", tars+"/rootfs.tar", "mine")
		drop := func() {
			t.Helper()
			g.ok("gc", "--blobs")
			if all := g.listed(); len(all) != 2 || all[0].Dropped <= 0 || all[1].Dropped != 0 {
				t.Errorf("after gc --blobs: %+v", all)
			}
		}
		drop()
		gone := g.fetched()
		if r := g.do("run", "--image", ref); r.code != 0 || r.stdout != "default\n" {
			t.Errorf("run: %+v", r)
		}
		g.ok("images", "check")
		g.ok("pull", ref)
		if n := g.fetched(); n != gone {
			t.Errorf("run, check and pull fetched %d blobs", n-gone)
		}
		g.ok("save", "mine", "-o", tars+"/mine.tar")

		g.ok("save", ref, "-o", tars+"/demo.tar")
		if n := g.fetched(); n == gone {
			t.Error("save fetched nothing")
		}
		if got := strings.TrimSpace(g.ok("import", "-q", tars+"/demo.tar", "mine")); got != digestOf(t, img) {
			t.Errorf("saved and imported: %s", got)
		}
	})
}

// TestImageGCBlobsOffline checks each command that needs dropped blobs, without the registry and with it.
func TestImageGCBlobsOffline(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		tars := t.TempDir()
		os.Chmod(tars, 0o777)
		os.Chmod(filepath.Dir(tars), 0o755)
		ref, _ := g.simple("demo:1")
		id := strings.TrimSpace(g.ok("create", "--image", ref))
		defer g.do("rm", id)
		g.ok("exec", id, "--", "/bin/busybox", "touch", "/new")
		needs := [][]string{{"export", "-o", tars + "/out.tar", ref}, {"save", "-o", tars + "/out.tar", ref}, {"commit", id, "local/copy"}}
		for _, args := range needs {
			g.ok("gc", "--blobs")
			g.reg.Fail(func(*http.Request) *fixture.Fault { return &fixture.Fault{Status: http.StatusNotFound} })
			g.told(t, "", args...)
			g.reg.Fail(nil)
			g.ok(args...)
		}
		g.ok("gc", "--blobs")
		for _, i := range g.listed() {
			if i.Dropped != 0 {
				t.Errorf("the layers below a committed image are dropped: %+v", i)
			}
		}
		for _, args := range [][]string{{"gc", "--blobs", "--outputs"}, {"gc", "--blobs", "--runner"}} {
			if r := g.do(args...); r.code == 0 || !strings.Contains(r.stderr, "cannot be combined") {
				t.Errorf("%q: %+v", args, r)
			}
		}
	})
}

// fetched counts the blobs that the registry served.
func (g *gallery) fetched() int {
	n, _ := g.reg.Count(http.MethodGet, "/blobs/")
	return n
}
