package integration

import (
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// halfway runs the command once to its end, and measures its duration. Then it starts the command again for the
// given number of rounds. In each, it kills the processes that whom returns after a random part of that time. It
// calls after at the end of each run.
func (b *box) halfway(rounds int, whom func(cli int) []int, args []string, after func(killed bool)) {
	b.Helper()
	began := time.Now()
	b.must(args...)
	took := time.Since(began)
	after(false)
	for range rounds {
		cmd := b.command("demesne", args...)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(rand.N(took)) // at any moment of the call
		for _, pid := range whom(cmd.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		cmd.Wait()
		after(true)
	}
}

func theCLI(pid int) []int { return []int{pid} }
func theRunner(int) []int  { return runners(true) }
func md5Of(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", md5.Sum(text))
}

const thirtyFiles = "mkdir -p d/sub; for i in $(seq 30); do head -c 300000 /dev/urandom > d/sub/$i; done; (cd d/sub; md5sum * | sort -k2 > /root/sums)"

// TestHalfwayCopyOut kills the CLI or the runner during a copy out of a sandbox. The copy leaves complete files
// or none, and the next copy removes temporary files.
func TestHalfwayCopyOut(t *testing.T) {
	for name, whom := range map[string]func(int) []int{"the CLI": theCLI, "the runner": theRunner} {
		b := newBox(t)
		b.create("--name", "box")
		b.must("exec", "box", "-c", thirtyFiles)
		want := map[string]bool{}
		for _, sum := range strings.Fields(b.must("exec", "box", "-c", "cut -d' ' -f1 /root/sums")) {
			want[sum] = true
		}
		to := b.dir + "/down"
		b.halfway(12, whom, []string{"cp", "box:/workspace/d", to}, func(killed bool) {
			names, _ := filepath.Glob(to + "/sub/*")
			for _, path := range names {
				if sum := md5Of(t, path); !want[sum] {
					t.Errorf("%s: %s is not whole", name, path)
				}
			}
			if !killed && len(names) != len(want) {
				t.Errorf("%s: %d files, not killed", name, len(names))
			}
			os.RemoveAll(to)
		})
		b.must("cp", "box:/workspace/d", to)
		if left, _ := filepath.Glob(b.dir + "/.demesne*"); len(left) > 0 {
			t.Errorf("%s: left: %q", name, left)
		}
		b.must("rm", "box")
	}
}

// TestHalfwayCopyIn kills the CLI or the runner during a copy into a sandbox. The copy leaves complete files or
// none, and no temporary files.
func TestHalfwayCopyIn(t *testing.T) {
	for name, whom := range map[string]func(int) []int{"the CLI": theCLI, "the runner": theRunner} {
		b := newBox(t)
		b.create("--name", "box")
		from := b.mkdir("up")
		for i := range 30 {
			b.file("up/"+string(rune('a'+i)), strings.Repeat("x", 300_000), 0o644)
		}
		b.halfway(12, whom, []string{"cp", from, "box:/workspace/in"}, func(bool) {
			// The copying process in the sandbox ends when it reaches the end of its input. Until then it makes files.
			eventually(t, "what copies inside to end", func() bool {
				return !slices.ContainsFunc(descendants(), func(p process) bool { return strings.Contains(p.String(), `\x00/workspace/in\x00`) })
			})
			if left := b.must("exec", "box", "-c", "mkdir -p in; find in -type f ! -size 300000c; find in -name '.demesne*'; rm -rf in"); left != "" {
				t.Errorf("%s: left: %q", name, left)
			}
		})
		b.must("rm", "box")
	}
}

// TestHalfwaySnapshot kills the CLI during a snapshot. The snapshot is complete or does not exist, and its
// sandbox keeps running.
func TestHalfwaySnapshot(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box")
	b.must("exec", "box", "-c", thirtyFiles+"; (while :; do date > /tmp/beat; sleep 0.02; done) >/dev/null 2>&1 &")
	b.halfway(10, theCLI, []string{"snapshot", "box"}, func(bool) {
		for _, id := range strings.Fields(b.must("ls", "-q")) {
			info := b.demesne("inspect", id)
			if strings.Contains(info.stderr, "no such sandbox") {
				continue // its caller was killed before it had the id, so it is removed
			}
			if info.code != 0 {
				t.Fatalf("inspect: %+v", info)
			}
			if !strings.Contains(info.stdout, "snapshot") {
				continue
			}
			made := b.demesne("fork", id)
			if strings.Contains(made.stderr, "no such sandbox") {
				continue
			}
			if made.code != 0 {
				t.Fatalf("fork: %+v", made)
			}
			fork := strings.TrimSpace(made.stdout)
			b.must("exec", fork, "-c", "cd d/sub; md5sum --quiet -c /root/sums")
			b.must("rm", fork)
			if r := b.demesne("rm", id); r.code != 0 && !strings.Contains(r.stderr, "no such sandbox") {
				t.Fatalf("rm: %+v", r)
			}
		}
		b.must("exec", "box", "-c", "rm /tmp/beat; while ! test -s /tmp/beat; do sleep 0.02; done")
	})
	b.must("rm", "box")
	// The runner may complete a snapshot that a killed CLI asked for, after the last check. It is a snapshot like
	// any other.
	eventually(t, "nothing to be on the disk", func() bool {
		if ids := strings.Fields(b.must("ls", "-q")); len(ids) > 0 {
			b.must(append([]string{"rm"}, ids...)...)
		}
		return len(names(b.dir+"/k")) == 0
	})
}

// TestHalfwayCommit kills the CLI or the runner during a commit. It leaves a working image or none, and no
// temporary snapshot.
func TestHalfwayCommit(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("create", "--name", "box", "--image", ref)
	g.ok("exec", "box", "-c", "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/big$i bs=1000000 count=1 2>/dev/null; done; md5sum /big* > /sums")
	for name, whom := range map[string]func(int) []int{"the CLI": theCLI, "the runner": theRunner} {
		g.halfway(6, whom, []string{"commit", "box", "local/made:1"}, func(bool) {
			if strings.Contains(g.ok("images"), "local/made") {
				g.ok("run", "--image", "local/made:1", "--", "sh", "-c", "md5sum -s -c /sums")
				// The process that unpacks the image may outlive the CLI for a moment.
				eventually(t, name+": the image to be nobody's", func() bool { return g.do("rmi", "local/made:1").code == 0 })
			}
			eventually(t, name+": the snapshot to go", func() bool {
				return len(strings.Fields(g.ok("ls", "-q"))) == 1
			})
			g.ok("images", "check")
		})
	}
	g.ok("rm", "box")
}
