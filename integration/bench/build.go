package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// kitchen holds the contexts that all programs build, and the base that they build on.
type kitchen struct {
	*machine
	peer    []string // command line of buildah; nil: not installed, or it cannot build here
	many    string   // context of a COPY of many files
	results int
}

const (
	steps     = 10
	copied    = 10000
	slowTurns = 7 // rounds of what takes a second
	buildBase = "local/base"
	bigBase   = "local/big"
)

// builds measures demesne build, compared with buildah and cp.
func builds(m *machine) {
	k := newKitchen(m)
	defer m.output("demesne", "gc", "--runner")
	for _, part := range []func(){k.cached, k.trivial, k.copies, k.bigRoot, k.parallel, k.memory} {
		part()
	}
}

func newKitchen(m *machine) *kitchen {
	k := &kitchen{machine: m, many: filepath.Join(m.dir, "many")}
	m.env = append(m.env, "DEMESNE_IMAGE_STORE="+m.dir+"/h/images")
	base := filepath.Join(m.dir, "base")
	check(busyboxTree(base))
	must(m.output("demesne", "import", "-q", base, buildBase))
	for i := range copied {
		dir := fmt.Sprintf("%s/files/d%d", k.many, i/100)
		check(os.MkdirAll(dir, 0o755))
		text := strings.Repeat(fmt.Sprintln(i), 1+i%500)
		check(os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), []byte(text), 0o644))
	}
	k.buildah()
	return k
}

// busyboxTree creates a root file system with a shell.
func busyboxTree(dir string) error {
	raw, err := os.ReadFile(find("busybox"))
	if err != nil {
		return fmt.Errorf("read busybox (make deps): %w", err)
	}
	if err := os.MkdirAll(dir+"/bin", 0o755); err != nil {
		return err
	}
	for _, name := range []string{"sh", "true", "cat", "dd", "sleep"} {
		if err := os.Symlink("busybox", dir+"/bin/"+name); err != nil {
			return err
		}
	}
	return os.WriteFile(dir+"/bin/busybox", raw, 0o755)
}

// buildah prepares the peer: its chroot isolation needs the least, and starts the fastest. It needs several ids, so
// it runs as root if the bench does, with storage of its own.
func (k *kitchen) buildah() {
	p := find("buildah")
	if p == "" {
		return
	}
	k.peer = []string{p, "--root", k.dir + "/buildah/root", "--runroot", k.dir + "/buildah/run", "--storage-driver", "overlay"}
	err := attempt(func() {
		context := k.context("base-of-buildah", "FROM scratch\nCOPY base /\n")
		check(os.Rename(k.dir+"/base", context+"/base"))
		k.theirs("", "", "-t", buildBase, context).run()
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: buildah: not compared: %v\n", err)
		k.peer = nil
	}
}

// ours is the entry of a build by demesne.
func (k *kitchen) ours(name, note string, args ...string) entry {
	return entry{name: name, note: note, run: k.timed(append([]string{"demesne", "build", "-q"}, args...)...)}
}

// theirs is the entry of a build by buildah. Three rounds are enough for it.
func (k *kitchen) theirs(name, note string, args ...string) entry {
	if k.peer == nil {
		return entry{}
	}
	argv := slices.Concat(k.peer, []string{"build", "-q", "--isolation", "chroot"}, args)
	return entry{name: name, note: note, enough: 3, run: func() time.Duration {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "HOME="+k.dir+"/buildah", "BUILDAH_FORMAT=oci")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return since(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				check(fmt.Errorf("buildah build: %w: %s", err, out))
			}
		})
	}}
}

// context creates a directory with a Containerfile.
func (k *kitchen) context(name, file string) string {
	dir := filepath.Join(k.dir, name)
	check(os.MkdirAll(dir, 0o755))
	check(os.WriteFile(dir+"/Containerfile", []byte(file), 0o644))
	return dir
}

// runs returns a Containerfile with n steps.
func runs(base string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\n", base)
	for i := range n {
		fmt.Fprintf(&b, "RUN true > /step%d\n", i)
	}
	return b.String()
}

// cached times a build whose steps are all kept, and the start-up of its program, which is part of it.
func (k *kitchen) cached() {
	dir := k.context("cached", runs(buildBase, steps))
	const ours, theirs = "demesne build, 10 steps cached", "buildah build, 10 steps cached"
	took := k.race(k.rounds/2, 1, synced,
		entry{name: "demesne-images build, start-up", run: k.timed("demesne-images", "build", "--help")},
		k.ours(ours, "", "-t", "local/cached", dir),
		k.theirs(theirs, "", "--layers", "-t", "local/cached", dir))
	k.atMost("demesne build, 10 steps cached", took[ours], 150*time.Millisecond)
	k.ratio("… against buildah", took[ours], took[theirs], 1)
}

// trivial times RUN steps that do nothing: the difference between builds of 11 steps and of one.
func (k *kitchen) trivial() {
	long, short := k.context("long", runs(buildBase, steps+1)), k.context("short", runs(buildBase, 1))
	const note = "every step executed"
	took := k.race(slowTurns, 1, synced,
		k.ours("demesne build, 11 steps", note, "--no-cache", long), k.ours("demesne build, 1 step", note, "--no-cache", short),
		k.theirs("buildah build, 11 steps", note, "--layers", "--no-cache", long), k.theirs("buildah build, 1 step", note, "--layers", "--no-cache", short))
	step := func(by string) time.Duration {
		return (took[by+" build, 11 steps"] - took[by+" build, 1 step"]) / steps
	}
	k.atMost("an uncached trivial RUN step, its layer stored", step("demesne"), 60*time.Millisecond)
	k.ratio("… against buildah ("+ms(step("buildah"))+")", step("demesne"), step("buildah"), 0.5)
}

// copies times a build that copies 10,000 files: all of it, from start to end.
func (k *kitchen) copies() {
	dir := k.context("many", "FROM "+buildBase+"\nCOPY files /files\n")
	const ours, theirs, cp, note = "demesne build, COPY of 10,000 files", "buildah build, COPY of 10,000 files", "cp -a of 10,000 files", "20 MB"
	took := k.race(slowTurns, 1, synced,
		entry{name: cp, note: note, run: func() time.Duration {
			k.results++
			return must(k.time(find("cp"), "-a", dir+"/files", fmt.Sprintf("%s/h/copy%d", k.dir, k.results)))
		}},
		k.ours(ours, note, "--no-cache", dir),
		k.ours("demesne build, the same COPY cached", note, dir),
		k.theirs(theirs, note, "--layers", "--no-cache", dir))
	k.ratio("COPY of 10,000 files, the whole build, against cp -a", took[ours], took[cp], 2)
	k.ratio("… against buildah", took[ours], took[theirs], 1)
}

// bigRoot times a step that changes one file, over a small root and over one of 1 GiB.
func (k *kitchen) bigRoot() {
	big := k.context("big", "FROM "+buildBase+"\nRUN i=0; while [ $i -lt 1024 ]; do dd if=/dev/urandom of=/file$i bs=1M count=1 2> /dev/null; i=$((i + 1)); done\n")
	must(k.output("demesne", "build", "-q", "-t", bigBase, big))
	const small, large = "demesne build, one file changed", "demesne build, one file of 1 GiB changed"
	change := func(name, base string) entry {
		return k.ours(name, "", "--no-cache", k.context(strings.ReplaceAll(base, "/", "-"), "FROM "+base+"\nRUN echo changed >> /bin/new\n"))
	}
	took := k.race(slowTurns, 1, synced, change(small, buildBase), change(large, bigBase))
	k.ratio("a step over a root of 1 GiB, against a small root", took[large], took[small], 1.25)
}

// parallel times two stages that each sleep for a second.
func (k *kitchen) parallel() {
	dir := k.context("parallel", "FROM "+buildBase+" AS a\nRUN sleep 1 && true > /a\nFROM "+buildBase+" AS b\nRUN sleep 1 && true > /b\n"+
		"FROM "+buildBase+"\nCOPY --from=a /a /a\nCOPY --from=b /b /b\n")
	took := k.repeated(3, "demesne build, two stages of 1 s", "", k.timed("demesne", "build", "-q", "--no-cache", dir))
	k.atMost("two stages that sleep for 1 s each", took, 1700*time.Millisecond)
}

// memory reports the peak memory of a build with a context and layers of 1 GiB.
func (k *kitchen) memory() {
	dir := k.context("heavy", "FROM "+buildBase+"\nCOPY heavy /heavy\nRUN cat /heavy > /more\n")
	check(exec.Command("dd", "if=/dev/urandom", "of="+dir+"/heavy", "bs=1M", "count=1024", "status=none").Run())
	held := peaks(5*time.Millisecond, func() { must(k.time("demesne", "build", "-q", "--no-cache", dir)) })
	k.mib("peak memory of a build, 1 GiB copied, 2 GiB stored", held["demesne-build"], 64)
}
