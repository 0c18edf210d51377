package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"demesne/integration/fixture"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// job is a command whose processor time is measured.
type job struct {
	name  string
	argv  []string
	count bool          // append a number to argv: runc and crun name their containers
	first []string      // a command before the first round, whose output is appended to what argv has before "--"
	last  []string      // a command after the last round, with the same output
	again []string      // a command after each one, with the output of argv
	env   string        // DEMESNE_LINGER
	pause time.Duration // between commands, for what goes on after a command

	calls func(n int) // in place of argv: starts a server, which gets so many calls
}

const (
	lingers = "DEMESNE_LINGER=10s"
	// settle is long enough for the teardown of a sandbox and the making of a prepared one.
	settle = 150 * time.Millisecond
)

// cpu measures user and system time of everything that a command causes: also of a runner that it starts, of a
// sandbox's PID 1, its teardown and the prepared sandbox that replaces it. Other load on the machine changes these
// figures less than it changes elapsed times.
func cpu(m *machine) {
	meter := newMeter(m)
	defer meter.close()
	var entries []entry
	for _, j := range m.jobs() {
		entries = append(entries, entry{name: j.name, note: meter.how, run: func() time.Duration { return meter.each(j) }})
	}
	m.cpuBounds(m.race(max(m.rounds/5, 3), 0, atOnce, entries...))
	m.faults()
}

// jobs lists what is measured. Peers that are not installed are left out.
func (m *machine) jobs() []job {
	jobs := []job{{name: "empty Go program", argv: []string{m.emptyProgram()}}, {name: "true", argv: []string{find("true")}}}
	if p := bubblewrap(); p != nil {
		jobs = append(jobs, job{name: "bwrap", argv: p})
	}
	if p := must(m.runc()); p != nil {
		jobs = append(jobs, job{name: "runc run", argv: p, count: true})
		if crun := find("crun"); crun != "" {
			c := append([]string{crun}, p[1:]...)
			if _, err := m.time(append(c, "try")...); err == nil { // not with both versions of control groups
				jobs = append(jobs, job{name: "crun run", argv: c, count: true})
			}
		}
	}
	run := func(flags ...string) []string {
		return append(append([]string{"demesne", "run"}, flags...), "--", "true")
	}
	return append(jobs,
		job{name: "demesne version", argv: []string{"demesne", "version"}},
		job{name: "demesne exec", argv: []string{"demesne", "exec", "--", "true"}, first: []string{"demesne", "create"}, last: []string{"demesne", "rm"}, env: lingers},
		job{name: "demesne run, cold", argv: run(), env: "DEMESNE_LINGER=0", pause: settle},
		job{name: "demesne run, in a loop", argv: run(), env: lingers},
		job{name: "demesne run, pooled", argv: run(), env: lingers, pause: settle},
		job{name: "demesne run, pooled, networked", argv: run("--allow-domain", "good.test"), env: lingers, pause: settle},
		job{name: "demesne run, pooled, image", argv: run("--image", m.image()), env: lingers, pause: settle},
		job{name: "demesne create + rm", argv: []string{"demesne", "create"}, again: []string{"demesne", "rm"}, env: lingers, pause: settle},
		job{name: "sandbox_script", calls: m.scripts, env: lingers},
		job{name: "E2B create + kill", calls: m.creates, env: lingers},
	)
}

// scripts calls sandbox_script n times.
func (m *machine) scripts(n int) {
	s := must(m.serve())
	defer func() { check(s.close()) }()
	for range n {
		must(s.timed("sandbox_script", params{"image": "host", "command": "true", "egress": "none"}))
		time.Sleep(settle)
	}
}

// creates makes n sandboxes by E2B's protocol, and ends each.
func (m *machine) creates(n int) {
	url, stop, err := m.serveAPI()
	check(err)
	defer stop()
	u := &uploader{machine: m, url: url, key: must(m.token())}
	for range n {
		var made struct{ SandboxID string }
		check(u.call(http.MethodPost, "/sandboxes", []byte(`{"templateID":"base"}`), &made))
		check(u.call(http.MethodDelete, "/sandboxes/"+made.SandboxID, []byte{}, nil))
		time.Sleep(settle)
	}
}

// emptyProgram builds a Go program that does nothing.
func (m *machine) emptyProgram() string {
	source, program := filepath.Join(m.dir, "empty.go"), filepath.Join(m.bin, "empty")
	check(os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644))
	check(goBuild("0", "-s -w", program, source))
	return program
}

// image writes an archive of a small image with true, and pulls it.
func (m *machine) image() string {
	img := must(fixture.Image(v1.Config{Env: []string{"PATH=/bin"}}, must(fixture.Layer(must(fixture.Busybox())...))))
	path := filepath.Join(m.dir, "busybox.tar")
	ref := "docker-archive:" + path
	check(tarball.WriteToFile(path, name.MustParseReference("busybox.test/busybox:1"), img))
	check(m.own(filepath.Join(m.dir, "i")))
	must(m.output("demesne", "run", "--image", ref, "--", "true"))
	return ref
}

func (m *machine) cpuBounds(median map[string]time.Duration) {
	pooled, exec := median["demesne run, pooled"], median["demesne exec"]
	m.ratio("CPU of a pooled run, against runc", pooled, median["runc run"], 0.6)
	m.ratio("… against bwrap", pooled, median["bwrap"], 3.5)
	m.ratio("CPU of a networked run, against runc", median["demesne run, pooled, networked"], median["runc run"], 0.75)
	m.ratio("CPU of exec, against an empty Go program and the command", exec, median["empty Go program"]+median["true"], 1.5)
	m.ratio("CPU of demesne version, against an empty Go program", median["demesne version"], median["empty Go program"], 1.6)
}

// faults counts the page faults of the client.
func (m *machine) faults() {
	id := must(m.output("demesne", "create"))
	defer m.output("demesne", "rm", id)
	count := func(argv ...string) int64 {
		var all []int64
		for range 11 {
			cmd := m.command(argv...)
			check(cmd.Run())
			all = append(all, cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt)
		}
		return median(all)
	}
	empty, exec := count("empty"), count("demesne", "exec", id, "--", "true")
	m.limit("minor page faults of demesne exec", exec <= 300, fmt.Sprintf("%d (an empty Go program: %d)", exec, empty), "<= 300")
}

// meter measures the processor time of this program's descendants.
type meter struct {
	*machine
	how string
}

// newMeter prefers a control group, which counts every process. An ordinary user counts the processes that ended and
// were reaped: this process is their subreaper.
func newMeter(m *machine) *meter {
	for _, top := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		group := fmt.Sprintf("%s/demesne-bench-%d", top, os.Getpid())
		if os.Mkdir(group, 0o755) == nil {
			if _, err := os.Stat(group + "/cpu.stat"); err == nil {
				m.group = must(os.Open(group))
				return &meter{m, "by control group"}
			}
			os.Remove(group)
		}
	}
	return &meter{m, "by rusage of ended processes"}
}

func (t *meter) close() {
	if t.group != nil {
		t.group.Close()
		os.Remove(t.group.Name())
		t.group = nil
	}
}

// each compares the times of so many commands.
const fewCommands, manyCommands = 2, 12

// each returns the time of one command. It is the slope between few commands and many, which leaves out the start and
// the end of a runner.
func (t *meter) each(j job) time.Duration {
	return (t.block(j, manyCommands) - t.block(j, fewCommands)) / (manyCommands - fewCommands)
}

// block returns the time of n commands and everything that they start.
func (t *meter) block(j job, n int) time.Duration {
	return t.cost(j.env, func() { t.commands(j, n) })
}

// cost returns the time of what f starts, with the end of its runner.
func (t *meter) cost(env string, f func()) time.Duration {
	t.env = []string{env}
	defer func() { t.env = nil }()
	before := t.used()
	f()
	if env != "" {
		must(t.output("demesne", "gc", "--runner"))
	}
	check(alone())
	return t.used() - before
}

// crowd starts n commands at once. It returns the time until all ended, and the processor time.
func (t *meter) crowd(j job, n int) (wall, cpu time.Duration) {
	cpu = t.cost(j.env, func() {
		var failed []error
		wall, failed = together(n, func(i int) error {
			_, err := t.output(j.numbered(j.argv, i)...)
			return err
		})
		check(errors.Join(failed...))
	})
	return wall, cpu
}

// numbered returns a command line with the number that j.count wants.
func (j job) numbered(argv []string, i int) []string {
	if j.count {
		return append(slices.Clone(argv), fmt.Sprint("c", i))
	}
	return argv
}

func (t *meter) commands(j job, n int) {
	if j.calls != nil {
		j.calls(n)
		return
	}
	argv := j.argv
	if j.first != nil {
		id := must(t.output(j.first...))
		argv = slices.Insert(slices.Clone(argv), slices.Index(argv, "--"), id)
		defer func() { must(t.output(append(slices.Clone(j.last), id)...)) }()
	}
	for i := range n {
		out := must(t.output(j.numbered(argv, i)...))
		if j.again != nil {
			must(t.output(append(slices.Clone(j.again), out)...))
		}
		time.Sleep(j.pause)
	}
}

// used returns the time that ended descendants used so far.
func (t *meter) used() time.Duration {
	if t.group == nil {
		var u syscall.Rusage
		check(syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	_, rest, _ := strings.Cut(string(must(os.ReadFile(t.group.Name()+"/cpu.stat"))), "usage_usec ")
	return time.Duration(must(strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64))) * time.Microsecond
}
