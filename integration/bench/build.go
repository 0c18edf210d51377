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

	"golang.org/x/sys/unix"
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
func builds(m *machine) error {
	k, err := newKitchen(m)
	if err != nil {
		return err
	}
	defer m.output("demesne", "gc", "--runner")
	for _, part := range []func() error{k.cached, k.trivial, k.copies, k.bigRoot, k.parallel, k.memory} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func newKitchen(m *machine) (*kitchen, error) {
	k := &kitchen{machine: m, many: filepath.Join(m.dir, "many")}
	m.env = append(m.env, "DEMESNE_IMAGE_STORE="+m.dir+"/h/images")
	base := filepath.Join(m.dir, "base")
	if err := busyboxTree(base); err != nil {
		return nil, err
	}
	if _, err := m.output("demesne", "import", "-q", base, buildBase); err != nil {
		return nil, err
	}
	for i := range copied {
		dir := fmt.Sprintf("%s/files/d%d", k.many, i/100)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		text := strings.Repeat(fmt.Sprintln(i), 1+i%500)
		if err := os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	k.buildah()
	return k, nil
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
	context, err := k.context("base-of-buildah", "FROM scratch\nCOPY base /\n")
	if err == nil {
		err = os.Rename(k.dir+"/base", context+"/base")
	}
	if err == nil {
		_, err = k.timePeer("-t", buildBase, context)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: buildah: not compared: %v\n", err)
		k.peer = nil
	}
}

// timePeer times one build by buildah, and returns 0 if the machine has no peer.
func (k *kitchen) timePeer(args ...string) (time.Duration, error) {
	if k.peer == nil {
		return 0, nil
	}
	argv := slices.Concat(k.peer, []string{"build", "-q", "--isolation", "chroot"}, args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+k.dir+"/buildah", "BUILDAH_FORMAT=oci")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("buildah build: %w: %s", err, out)
	}
	return time.Since(start), nil
}

// context creates a directory with a Containerfile.
func (k *kitchen) context(name, file string) (string, error) {
	dir := filepath.Join(k.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.WriteFile(dir+"/Containerfile", []byte(file), 0o644)
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

// contest times programs, which take turns, and returns their medians. A program that returns 0 is missing. Three
// rounds are enough for the peer.
func (k *kitchen) contest(rounds int, note string, names []string, run map[string]func() (time.Duration, error)) (map[string]time.Duration, error) {
	times, median := map[string][]time.Duration{}, map[string]time.Duration{}
	for i := range rounds + 1 {
		for _, name := range names {
			if i > 3 && slow(times[name]) && strings.HasPrefix(name, "buildah") {
				continue
			}
			unix.Sync() // write out the files of the previous one, so that they do not count here
			d, err := run[name]()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if i > 0 && d > 0 { // the first round reads the programs from disk
				times[name] = append(times[name], d)
			}
		}
	}
	for _, name := range names {
		if len(times[name]) > 0 {
			median[name] = k.add(name, note, times[name])
		}
	}
	return median, nil
}

// cached times a build whose steps are all kept, and the start-up of its program, which is part of it.
func (k *kitchen) cached() error {
	dir, err := k.context("cached", runs(buildBase, steps))
	if err != nil {
		return err
	}
	const ours, theirs, start = "demesne build, 10 steps cached", "buildah build, 10 steps cached", "demesne-images build, start-up"
	median, err := k.contest(k.rounds/2, "", []string{start, ours, theirs}, map[string]func() (time.Duration, error){
		start:  func() (time.Duration, error) { return k.time("demesne-images", "build", "--help") },
		ours:   func() (time.Duration, error) { return k.time("demesne", "build", "-q", "-t", "local/cached", dir) },
		theirs: func() (time.Duration, error) { return k.timePeer("--layers", "-t", "local/cached", dir) },
	})
	if err != nil {
		return err
	}
	k.atMost("demesne build, 10 steps cached", median[ours], 150*time.Millisecond)
	k.ratio("… against buildah", median[ours], median[theirs], 1)
	return nil
}

// trivial times RUN steps that do nothing: the difference between builds of 11 steps and of one.
func (k *kitchen) trivial() error {
	long, err := k.context("long", runs(buildBase, steps+1))
	if err != nil {
		return err
	}
	short, err := k.context("short", runs(buildBase, 1))
	if err != nil {
		return err
	}
	ours := func(dir string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return k.time("demesne", "build", "-q", "--no-cache", dir) }
	}
	theirs := func(dir string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return k.timePeer("--layers", "--no-cache", dir) }
	}
	names := []string{"demesne build, 11 steps", "demesne build, 1 step", "buildah build, 11 steps", "buildah build, 1 step"}
	median, err := k.contest(slowTurns, "every step executed", names, map[string]func() (time.Duration, error){
		names[0]: ours(long), names[1]: ours(short), names[2]: theirs(long), names[3]: theirs(short)})
	if err != nil {
		return err
	}
	own, peer := (median[names[0]]-median[names[1]])/steps, (median[names[2]]-median[names[3]])/steps
	k.atMost("an uncached trivial RUN step, its layer stored", own, 60*time.Millisecond)
	k.ratio("… against buildah ("+ms(peer)+")", own, peer, 0.5)
	return nil
}

// copies times a build that copies 10,000 files: all of it, from start to end.
func (k *kitchen) copies() error {
	if _, err := k.context("many", "FROM "+buildBase+"\nCOPY files /files\n"); err != nil {
		return err
	}
	const ours, theirs, cp, again = "demesne build, COPY of 10,000 files", "buildah build, COPY of 10,000 files", "cp -a of 10,000 files", "demesne build, the same COPY cached"
	median, err := k.contest(slowTurns, "20 MB", []string{cp, ours, again, theirs}, map[string]func() (time.Duration, error){
		cp: func() (time.Duration, error) {
			k.results++
			return k.time(find("cp"), "-a", k.many+"/files", fmt.Sprintf("%s/h/copy%d", k.dir, k.results))
		},
		ours:   func() (time.Duration, error) { return k.time("demesne", "build", "-q", "--no-cache", k.many) },
		again:  func() (time.Duration, error) { return k.time("demesne", "build", "-q", k.many) },
		theirs: func() (time.Duration, error) { return k.timePeer("--layers", "--no-cache", k.many) },
	})
	if err != nil {
		return err
	}
	k.ratio("COPY of 10,000 files, the whole build, against cp -a", median[ours], median[cp], 2)
	k.ratio("… against buildah", median[ours], median[theirs], 1)
	return nil
}

// bigRoot times a step that changes one file, over a small root and over one of 1 GiB.
func (k *kitchen) bigRoot() error {
	big, err := k.context("big", "FROM "+buildBase+"\nRUN i=0; while [ $i -lt 1024 ]; do dd if=/dev/urandom of=/file$i bs=1M count=1 2> /dev/null; i=$((i + 1)); done\n")
	if err != nil {
		return err
	}
	if _, err := k.output("demesne", "build", "-q", "-t", bigBase, big); err != nil {
		return err
	}
	const small, large = "demesne build, one file changed", "demesne build, one file of 1 GiB changed"
	run := map[string]func() (time.Duration, error){}
	for name, base := range map[string]string{small: buildBase, large: bigBase} {
		dir, err := k.context(strings.ReplaceAll(base, "/", "-"), "FROM "+base+"\nRUN echo changed >> /bin/new\n")
		if err != nil {
			return err
		}
		run[name] = func() (time.Duration, error) { return k.time("demesne", "build", "-q", "--no-cache", dir) }
	}
	median, err := k.contest(slowTurns, "", []string{small, large}, run)
	if err != nil {
		return err
	}
	k.ratio("a step over a root of 1 GiB, against a small root", median[large], median[small], 1.25)
	return nil
}

// parallel times two stages that each sleep for a second.
func (k *kitchen) parallel() error {
	dir, err := k.context("parallel", "FROM "+buildBase+" AS a\nRUN sleep 1 && true > /a\nFROM "+buildBase+" AS b\nRUN sleep 1 && true > /b\n"+
		"FROM "+buildBase+"\nCOPY --from=a /a /a\nCOPY --from=b /b /b\n")
	if err != nil {
		return err
	}
	var times []time.Duration
	for range 3 {
		d, err := k.time("demesne", "build", "-q", "--no-cache", dir)
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	k.atMost("two stages that sleep for 1 s each", k.add("demesne build, two stages of 1 s", "", times), 1700*time.Millisecond)
	return nil
}

// memory reports the peak memory of a build with a context and layers of 1 GiB.
func (k *kitchen) memory() error {
	dir, err := k.context("heavy", "FROM "+buildBase+"\nCOPY heavy /heavy\nRUN cat /heavy > /more\n")
	if err != nil {
		return err
	}
	if err := exec.Command("dd", "if=/dev/urandom", "of="+dir+"/heavy", "bs=1M", "count=1024", "status=none").Run(); err != nil {
		return err
	}
	cmd := k.command("demesne", "build", "-q", "--no-cache", dir)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for peak := 0.0; ; {
		select {
		case err := <-done:
			k.limit("peak memory of a build, 1 GiB copied, 2 GiB stored", peak > 0 && peak <= 64, fmt.Sprintf("%.0f MiB", peak), "<= 64 MiB")
			return err
		case <-time.After(5 * time.Millisecond):
			for _, p := range family() {
				if p.name == "demesne-build" {
					peak = max(peak, anonymous(p.pid))
				}
			}
		}
	}
}
