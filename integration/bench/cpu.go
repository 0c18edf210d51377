package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
}

const (
	lingers = "DEMESNE_LINGER=10s"
	// settle is long enough for the teardown of a sandbox and the making of a prepared one.
	settle = 150 * time.Millisecond
)

// cpu measures user and system time of everything that a command causes: also of a runner that it starts, of a
// sandbox's PID 1, its teardown and the prepared sandbox that replaces it. Other load on the machine changes these
// figures less than it changes elapsed times.
func cpu(m *machine) error {
	jobs, err := m.jobs()
	if err != nil {
		return err
	}
	meter := newMeter(m)
	defer meter.close()
	costs := map[string][]time.Duration{}
	for range max(m.rounds/5, 3) {
		for _, j := range jobs {
			d, err := meter.each(j)
			if err != nil {
				return fmt.Errorf("%s: %w", j.name, err)
			}
			costs[j.name] = append(costs[j.name], d)
		}
	}
	median := map[string]time.Duration{}
	for _, j := range jobs {
		median[j.name] = m.add(j.name, meter.how, costs[j.name])
	}
	m.cpuBounds(median)
	return m.faults()
}

// jobs lists what is measured. Peers that are not installed are left out.
func (m *machine) jobs() ([]job, error) {
	empty, err := m.emptyProgram()
	if err != nil {
		return nil, err
	}
	jobs := []job{{name: "empty Go program", argv: []string{empty}}, {name: "true", argv: []string{find("true")}}}
	if p := bubblewrap(); p != nil {
		jobs = append(jobs, job{name: "bwrap", argv: p})
	}
	p, err := m.runc()
	if err != nil {
		return nil, err
	}
	if p != nil {
		jobs = append(jobs, job{name: "runc run", argv: p, count: true})
		if crun := find("crun"); crun != "" {
			c := append([]string{crun}, p[1:]...)
			if _, err := m.time(append(c, "try")...); err == nil { // not with both versions of control groups
				jobs = append(jobs, job{name: "crun run", argv: c, count: true})
			}
		}
	}
	archive, err := m.image()
	if err != nil {
		return nil, err
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
		job{name: "demesne run, pooled, image", argv: run("--image", archive), env: lingers, pause: settle},
		job{name: "demesne create + rm", argv: []string{"demesne", "create"}, again: []string{"demesne", "rm"}, env: lingers, pause: settle},
	), nil
}

// emptyProgram builds a Go program that does nothing.
func (m *machine) emptyProgram() (string, error) {
	source, program := filepath.Join(m.dir, "empty.go"), filepath.Join(m.bin, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		return "", err
	}
	return program, goBuild("0", "-s -w", program, source)
}

// image writes an archive of a small image with true, and pulls it.
func (m *machine) image() (string, error) {
	entries, err := fixture.Busybox()
	if err != nil {
		return "", err
	}
	layer, err := fixture.Layer(entries...)
	if err != nil {
		return "", err
	}
	img, err := fixture.Image(v1.Config{Env: []string{"PATH=/bin"}}, layer)
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, "busybox.tar")
	ref := "docker-archive:" + path
	if err := tarball.WriteToFile(path, name.MustParseReference("busybox.test/busybox:1"), img); err != nil {
		return "", err
	}
	store := filepath.Join(m.dir, "i")
	if err := m.own(store); err != nil {
		return "", err
	}
	_, err = m.output("demesne", "run", "--image", ref, "--", "true")
	return ref, err
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
func (m *machine) faults() error {
	id, err := m.output("demesne", "create")
	if err != nil {
		return err
	}
	defer m.output("demesne", "rm", id)
	count := func(argv ...string) (int64, error) {
		var all []int64
		for range 11 {
			cmd := m.command(argv...)
			if err := cmd.Run(); err != nil {
				return 0, err
			}
			all = append(all, cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt)
		}
		slices.Sort(all)
		return all[len(all)/2], nil
	}
	empty, err := count("empty")
	if err != nil {
		return err
	}
	exec, err := count("demesne", "exec", id, "--", "true")
	if err != nil {
		return err
	}
	m.limit("minor page faults of demesne exec", exec <= 300, fmt.Sprintf("%d (an empty Go program: %d)", exec, empty), "<= 300")
	return nil
}

// meter measures the processor time of this program's descendants.
type meter struct {
	*machine
	how   string
	group string // a control group (version 2) for them, or ""
}

// newMeter prefers a control group, which counts every process. An ordinary user counts the processes that ended and
// were reaped: this process is their subreaper.
func newMeter(m *machine) *meter {
	for _, top := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		group := fmt.Sprintf("%s/demesne-bench-%d", top, os.Getpid())
		if os.Mkdir(group, 0o755) == nil {
			if _, err := os.Stat(group + "/cpu.stat"); err == nil {
				return &meter{m, "by control group", group}
			}
			os.Remove(group)
		}
	}
	return &meter{m, "by rusage of ended processes", ""}
}

func (t *meter) close() {
	if t.group != "" {
		os.Remove(t.group)
	}
}

// each compares the times of so many commands.
const fewCommands, manyCommands = 2, 12

// each returns the time of one command. It is the slope between few commands and many, which leaves out the start and
// the end of a runner.
func (t *meter) each(j job) (time.Duration, error) {
	short, err := t.block(j, fewCommands)
	if err != nil {
		return 0, err
	}
	long, err := t.block(j, manyCommands)
	return (long - short) / (manyCommands - fewCommands), err
}

// block returns the time of n commands and everything that they start.
func (t *meter) block(j job, n int) (time.Duration, error) {
	return t.cost(j.env, func() error { return t.commands(j, n) })
}

// cost returns the time of what f starts, with the end of its runner.
func (t *meter) cost(env string, f func() error) (time.Duration, error) {
	t.env = []string{env}
	defer func() { t.env = nil }()
	before, err := t.used()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if env != "" {
		if _, err := t.run("demesne", "gc", "--runner"); err != nil {
			return 0, err
		}
	}
	if err := alone(); err != nil {
		return 0, err
	}
	after, err := t.used()
	return after - before, err
}

// crowd starts n commands at once. It returns the time until all ended, and the processor time.
func (t *meter) crowd(j job, n int) (wall, cpu time.Duration, err error) {
	cpu, err = t.cost(j.env, func() error {
		var wg sync.WaitGroup
		failed, start := make([]error, n), time.Now()
		for i := range n {
			argv := j.argv
			if j.count {
				argv = append(slices.Clone(argv), fmt.Sprint("c", i))
			}
			wg.Go(func() { _, failed[i] = t.run(argv...) })
		}
		wg.Wait()
		wall = time.Since(start)
		return errors.Join(failed...)
	})
	return wall, cpu, err
}

func (t *meter) commands(j job, n int) (err error) {
	argv := j.argv
	if j.first != nil {
		id, err := t.run(j.first...)
		if err != nil {
			return err
		}
		argv = slices.Insert(slices.Clone(argv), slices.Index(argv, "--"), id)
		defer func() {
			_, rerr := t.run(append(slices.Clone(j.last), id)...)
			err = errors.Join(err, rerr)
		}()
	}
	for i := range n {
		now := argv
		if j.count {
			now = append(slices.Clone(argv), fmt.Sprint("c", i))
		}
		out, err := t.run(now...)
		if err == nil && j.again != nil {
			_, err = t.run(append(slices.Clone(j.again), out)...)
		}
		if err != nil {
			return err
		}
		time.Sleep(j.pause)
	}
	return nil
}

// run runs a command in the control group and returns its output.
func (t *meter) run(argv ...string) (string, error) {
	cmd := t.command(argv...)
	if t.group != "" {
		dir, err := os.Open(t.group)
		if err != nil {
			return "", err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, errs.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}

// used returns the time that ended descendants used so far.
func (t *meter) used() (time.Duration, error) {
	if t.group == "" {
		var u syscall.Rusage
		err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
	}
	raw, err := os.ReadFile(t.group + "/cpu.stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), "usage_usec ")
	us, err := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return time.Duration(us) * time.Microsecond, err
}
