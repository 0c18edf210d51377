package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSpareShapes checks that the pool holds prepared sandboxes of several shapes at a time, so that alternating
// callers find one each time.
func TestSpareShapes(t *testing.T) {
	b := spareBox(t)
	shapes := [][]string{{"--trace"}, {"--trace", "--pids", "99"}, {"--trace", "--allow-domain", "good.test"}}
	eventually(t, "a spare of each shape", func() bool {
		all := true
		for _, flags := range shapes {
			p, r := b.report(flags, "true")
			if p.ExitCode != 0 {
				t.Fatalf("%q: %s", flags, r.stdout)
			}
			all = onSpare(p) && all
		}
		time.Sleep(100 * time.Millisecond) // time to prepare the next one
		return all
	})
}

// TestSpareOnce checks that no sandbox is prepared for a shape that was requested only once.
func TestSpareOnce(t *testing.T) {
	b := spareBox(t)
	shape := func(i int) []string { return []string{"--trace", "--pids", fmt.Sprint(50 + i)} }
	for i := range 3 {
		b.report(shape(i), "true")
	}
	time.Sleep(100 * time.Millisecond) // an unwanted one would be prepared by then
	for i := range 3 {
		if p, r := b.report(shape(i), "true"); p.ExitCode != 0 || onSpare(p) {
			t.Errorf("the second of shape %d: in a spare: %v; %s", i, onSpare(p), r.stdout)
		}
	}
}

// TestSpareBound checks that with room for one prepared sandbox, the shape asked for last gets it.
func TestSpareBound(t *testing.T) {
	b := spareBox(t, "DEMESNE_POOL_SIZE=1")
	for _, flags := range [][]string{nil, {"--pids", "99"}, nil} {
		b.warm(flags)
	}
}

// TestSpareImage checks prepared sandboxes of images. Their receipt equals the receipt of a sandbox made on demand. They
// never delay the removal of an image, and the next run uses the image as it is then.
func TestSpareImage(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("create", "--name", "holder")
	defer g.do("rm", "holder")
	image := []string{"--image", ref}
	const look = `sed 's/.* - //; s/lowerdir.*//' /proc/self/mountinfo | sort; id; pwd; grep -E '^(Cap|Seccomp)' /proc/self/status
		ls -l / | sed '1d; s/^\([a-z-]*\) *[0-9]* *\([a-z]* *[a-z]*\) .* /\1 \2 /'`
	cold, _ := g.report(image, "sh", "-c", look)
	warm := g.warm(image, "sh", "-c", look)
	if warm.Stdout != cold.Stdout || receiptText(warm) != receiptText(cold) {
		t.Errorf("made on demand:  %s\n%s\nmade in advance: %s\n%s", cold.Stdout, receiptText(cold), warm.Stdout, receiptText(warm))
	}
	eventually(t, "the layers to be gone, one under an unused sandbox", func() bool {
		g.ok("gc", "--all")
		return len(g.trees()) == 0
	})
	for range 3 {
		if got := g.inside(ref, "head -c 5 /etc/passwd; ls /bin | head -1; touch /bin/mark"); !strings.HasPrefix(got, "root:") {
			t.Errorf("after gc --all: %q", got)
		}
		time.Sleep(100 * time.Millisecond) // most rounds find a prepared sandbox
	}
}

// TestSpareImageRemoved removes an image right after the last command on it, while a runner may be preparing a
// sandbox of it.
func TestSpareImageRemoved(t *testing.T) {
	g := newGallery(t)
	g.ok("create", "--name", "holder")
	defer g.do("rm", "holder")
	for i := range 10 {
		ref, _ := g.simple(fmt.Sprintf("demo:%d", i))
		g.ok("run", "--image", ref, "--", "true")
		g.ok("run", "--image", ref, "--", "true")         // the second one makes the runner prepare another
		time.Sleep(time.Duration(6*i) * time.Millisecond) // another moment in each round
		g.ok("rmi", ref)
	}
}

// TestSpareOuterProc checks that a prepared sandbox has its caller's directories also where it has the outer /proc, as in most
// containers.
func TestSpareOuterProc(t *testing.T) {
	b := newBox(t)
	flags := "-rm"
	if os.Getuid() == 0 {
		flags = "-m"
	}
	const script = `mount -t tmpfs none /proc/fs && cd "$1" && id=$("$0" create) || exit
		trap '"$0" rm "$id"' EXIT
		until grep -q '"prepared"' report; do
			mkdir out work; "$0" run --json --trace --out out --workspace work -- sh -c 'echo out > /out/f; echo work > /workspace/f' > report || exit
			cat out/f work/f && rm -r out work || exit
			sleep 0.1
		done`
	r := b.finish(b.command(program(t, "unshare"), flags, "sh", "-c", script, bin+"/demesne", b.mkdir("d")))
	if r.code != 0 || strings.ReplaceAll(r.stdout, "out\nwork\n", "") != "" {
		t.Errorf("%+v\n%s", r, readFile(t, b.dir+"/d/report"))
	}
	if !strings.Contains(readFile(t, b.dir+"/d/report"), "the outer /proc, bound") {
		t.Error("its /proc is its own")
	}
}
