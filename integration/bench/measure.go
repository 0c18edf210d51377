package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// add records the times of one case and returns their median.
func (m *machine) add(name, note string, times []time.Duration) time.Duration {
	r := row{name, median(times), times[min(len(times)-1, len(times)*99/100)], note}
	m.rows = append(m.rows, r)
	fmt.Fprintf(os.Stderr, "bench: %s: %s (median of %d)\n", name, ms(r.Median), len(times))
	return r.Median
}

func (m *machine) limit(name string, ok bool, got, want string) {
	b := bound{name, want, got, ok}
	m.bounds = append(m.bounds, b)
	fmt.Fprintf(os.Stderr, "bench: %s: %s, wanted %s: %s\n", name, got, want, b.verdict())
}

// atMost records an upper bound on a time.
func (m *machine) atMost(name string, got, want time.Duration) {
	m.limit(name, got <= want, ms(got), "<= "+ms(want))
}

func ms(d time.Duration) string {
	if d < 200*time.Microsecond {
		return fmt.Sprintf("%.3f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}

// startup times cold runs of demesne and of the peers; they take turns.
func startup(m *machine) {
	const cold, least = "demesne run, cold", "libcontainer alone"
	took := m.cold(m.rounds,
		entry{name: cold, note: "single-id", run: m.timed("demesne", "run", "--", "true")},
		entry{name: "bwrap", note: "single-id", run: m.timed(bubblewrap()...)},
		entry{name: "runc run", note: "single-id", run: m.timedNamed(must(m.runc())...)},
		entry{name: least, run: m.timed(m.floor()...)})
	m.rows[len(m.rows)-1].Note = fmt.Sprintf("the least that libcontainer can do here (bench/floor); demesne run is %.2f x that", float64(took[cold])/float64(took[least]))
	m.atMost("demesne run -- true, cold, single-id", took[cold], 15*time.Millisecond)
	m.ratio("… against runc run", took[cold], took["runc run"], 0.75)
	m.ratio("… against bwrap", took[cold], took["bwrap"], 4)
	// demesne check tries every feature.
	m.atMost("demesne check", m.repeated(5, "demesne check", "single-id", m.timed("demesne", "check")), time.Second)
}

// timedNamed is timed for a program that takes another name for each container.
func (m *machine) timedNamed(argv ...string) func() time.Duration {
	if len(argv) == 0 {
		return nil
	}
	containers := 0
	return func() time.Duration {
		containers++
		return must(m.time(append(slices.Clone(argv), fmt.Sprint("c", containers))...))
	}
}

func (m *machine) ratio(name string, got, peer time.Duration, want float64) {
	if peer == 0 {
		m.limit(name, true, "not installed", fmt.Sprintf("<= %.2f x", want))
		return
	}
	r := float64(got) / float64(peer)
	m.limit(name, r <= want, fmt.Sprintf("%.2f x", r), fmt.Sprintf("<= %.2f x", want))
}

// warm times runs and execs while a runner is alive.
func warm(m *machine) {
	id := must(m.output("demesne", "create"))
	defer m.output("demesne", "rm", id)
	const next, paused, exec, bare, inside = "demesne run, runner alive", "demesne run, runner alive, after 100 ms", "demesne exec", "fork and execve of true", "exec inside the protocol"
	run := m.timed("demesne", "run", "--", "true")
	took := m.race(m.rounds, 0, atOnce,
		entry{name: next, note: "single-id", run: run},
		entry{name: paused, note: "single-id", run: func() time.Duration { time.Sleep(100 * time.Millisecond); return run() }},
		entry{name: exec, run: m.timed("demesne", "exec", id, "--", "true")},
		entry{name: bare, note: "no sandbox: what of the next figure is the kernel's", run: func() time.Duration { return forked("true") }},
		entry{name: inside, note: "stage \"exec\" of --json", run: func() time.Duration {
			return must(stage(must(m.output("demesne", "exec", "--json", id, "--", "true")), "exec"))
		}})
	m.atMost("demesne run -- true, runner alive, other commands just before", took[next], 7*time.Millisecond)
	m.atMost("demesne run -- true, runner alive, after a pause", took[paused], 7*time.Millisecond)
	m.atMost("demesne exec -- true", took[exec], 8*time.Millisecond)
	m.atMost("exec inside the protocol, p50", took[inside], time.Millisecond)
}

// forked returns the time to start a program without a sandbox, as PID 1 of a sandbox starts a command.
func forked(name string) time.Duration {
	path := find(name)
	start := time.Now()
	pid, err := syscall.ForkExec(path, []string{name}, &syscall.ProcAttr{})
	d := time.Since(start)
	check(os.NewSyscallError("start "+path, err))
	must(syscall.Wait4(pid, nil, 0, nil))
	return d
}

// stage returns the time of one stage in a result's trace.
func stage(text, name string) (time.Duration, error) {
	var r struct {
		Trace []struct {
			Name string
			MS   float64
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return 0, fmt.Errorf("read result: %w", err)
	}
	for _, s := range r.Trace {
		if s.Name == name && s.MS > 0 {
			return time.Duration(s.MS * float64(time.Millisecond)), nil
		}
	}
	return 0, fmt.Errorf("find stage %q in the trace: %s", name, text)
}

// many creates 100 sandboxes at once, first those of demesne, then those of demesne and its peers in turn.
func many(m *machine) {
	const name = "100 at once"
	crowd(m, name)
	jobs := slices.DeleteFunc(m.jobs(), func(j job) bool {
		return !slices.Contains([]string{"demesne run, in a loop", "bwrap", "runc run"}, j.name)
	})
	meter := newMeter(m)
	defer meter.close()
	walls, costs := map[string][]time.Duration{}, map[string][]time.Duration{}
	for range 5 {
		for _, j := range jobs {
			wall, cpu := meter.crowd(j, 100)
			walls[j.name], costs[j.name] = append(walls[j.name], wall), append(costs[j.name], cpu)
		}
	}
	for _, j := range jobs {
		m.add(name+", all: "+j.name, "", walls[j.name])
		m.add(name+", CPU of all: "+j.name, meter.how, costs[j.name])
	}
}

// crowd creates 100 sandboxes at once, with the given flags.
func crowd(m *machine, name string, flags ...string) {
	argv := append(append([]string{"demesne", "run"}, flags...), "--", "true")
	check(alone())
	m.hundred(name, "each of "+name, func() (time.Duration, error) { return m.time(argv...) })
}

// hundred calls do 100 times at once, and bounds the time of all. It also records the times of those that succeed.
func (m *machine) hundred(name, each string, do func() (time.Duration, error)) {
	var times [100]time.Duration
	total, failed := together(len(times), func(i int) (err error) { times[i], err = do(); return err })
	if all := slices.DeleteFunc(times[:], func(d time.Duration) bool { return d == 0 }); len(all) > 0 {
		m.add(each, "", all)
	}
	m.atMost(name, total, 1500*time.Millisecond)
	m.limit("… failing", len(failed) == 0, count(len(failed), failed), "0")
}

// count returns a number with the first error.
func count(n int, failed []error) string {
	if len(failed) == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d: %v", n, failed[0])
}

// idle measures the cost of 50 idle sandboxes.
func idle(m *machine) {
	check(alone())
	var ids []string
	defer func() { m.output(append([]string{"demesne", "rm"}, ids...)...) }()
	for range 50 {
		ids = append(ids, must(m.output("demesne", "create")))
	}
	time.Sleep(300 * time.Millisecond)
	var inits, runner []float64
	for _, p := range family() {
		pss, err := pss(p.pid)
		if err != nil {
			m.limit("idle PSS", false, "not readable: run make bench as root", "<= 1.50 MiB")
			return
		}
		switch {
		case strings.HasSuffix(p.name, "demesne-init"):
			inits = append(inits, pss)
		case p.name == "demesne-runner":
			runner = append(runner, pss)
		}
	}
	if len(inits) < 50 || len(runner) != 1 {
		check(fmt.Errorf("measure idle: %d inits and %d runners for 50 sandboxes", len(inits), len(runner)))
	}
	init := median(inits) // prepared sandboxes are idle too
	m.limit("idle sandbox, PSS (median of 50)", init <= 1.5, fmt.Sprintf("%.2f MiB", init), "<= 1.50 MiB")
	m.limit("runner with 50 of them, PSS", runner[0] <= 15, fmt.Sprintf("%.2f MiB", runner[0]), "<= 15 MiB")
}

// pss returns the proportional set size of a process, in MiB.
func pss(pid int) (float64, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(raw), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no Pss for %d", pid)
}

// streams measures the rate of 4 GiB of stdout, and checks that 1 GiB of stdin arrives complete.
func streams(m *machine) {
	const size = 4 << 30
	dd := []string{"dd", "if=/dev/zero", "bs=1M", "count=4096", "status=none"}
	rate := func(argv ...string) float64 {
		cmd := m.command(argv...)
		out := must(cmd.StdoutPipe())
		var n int64
		d := since(func() {
			check(cmd.Start())
			var err error
			n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 1<<20))
			check(errors.Join(err, cmd.Wait()))
		})
		if n != size {
			check(fmt.Errorf("stream stdout: %d bytes of %d", n, int64(size)))
		}
		return float64(n) / 1e9 / d.Seconds()
	}
	direct := rate(append([]string{find("dd")}, dd[1:]...)...)
	inside := rate(append([]string{"demesne", "run", "--"}, dd...)...)
	m.limit("stdout through the sandbox", inside >= 1, fmt.Sprintf("%.2f GB/s (a bare pipe: %.2f)", inside, direct), ">= 1 GB/s")
	cmd := m.command("demesne", "run", "-i", "--", "wc", "-c")
	cmd.Stdin = io.LimitReader(zeros{}, 1<<30)
	out, err := cmd.Output()
	got := string(bytes.TrimSpace(out))
	if err != nil {
		got += " " + err.Error()
	}
	m.limit("cat 1 GiB | demesne run -i -- wc -c", got == "1073741824", got, "1073741824")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
