package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// add records the times of one case and returns their median.
func (m *machine) add(name, note string, times []time.Duration) time.Duration {
	slices.Sort(times)
	r := row{name, times[len(times)/2], times[min(len(times)-1, len(times)*99/100)], note}
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
func startup(m *machine) error {
	cases := map[string][]string{"demesne run, cold": {"demesne", "run", "--", "true"}}
	order := []string{"demesne run, cold"}
	if p := bubblewrap(); p != nil {
		cases["bwrap"], order = p, append(order, "bwrap")
	}
	p, err := m.runc()
	if err != nil {
		return err
	}
	if p != nil {
		cases["runc run"], order = p, append(order, "runc run")
	}
	const least = "libcontainer alone"
	if cases[least], err = m.floor(); err != nil {
		return err
	}
	order = append(order, least)
	m.env = []string{"DEMESNE_LINGER=0"} // a runner that lingers would not be gone before the next round
	defer func() { m.env = nil }()
	times := map[string][]time.Duration{}
	for i := range m.rounds + 3 {
		for _, name := range order {
			argv := cases[name]
			if name == "runc run" {
				argv = append(argv[:len(argv):len(argv)], fmt.Sprint("c", i))
			}
			if err := alone(); err != nil {
				return err
			}
			d, err := m.time(argv...)
			if err != nil {
				return err
			}
			if i >= 3 { // the first rounds read the programs from disk
				times[name] = append(times[name], d)
			}
		}
	}
	median := map[string]time.Duration{}
	for _, name := range order {
		median[name] = m.add(name, "single-id", times[name])
	}
	cold := median["demesne run, cold"]
	m.rows[len(m.rows)-1].Note = fmt.Sprintf("the least that libcontainer can do here (bench/floor); demesne run is %.2f x that", float64(cold)/float64(median[least]))
	m.atMost("demesne run -- true, cold, single-id", cold, 15*time.Millisecond)
	m.ratio("… against runc run", cold, median["runc run"], 0.75)
	m.ratio("… against bwrap", cold, median["bwrap"], 4)
	return checks(m)
}

// checks times demesne check, which tries every feature.
func checks(m *machine) error {
	var times []time.Duration
	for range 5 {
		d, err := m.time("demesne", "check")
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	m.atMost("demesne check", m.add("demesne check", "single-id", times), time.Second)
	return nil
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
func warm(m *machine) error {
	id, err := m.output("demesne", "create")
	if err != nil {
		return err
	}
	defer m.output("demesne", "rm", id)
	var runs, paused, execs, inside, bare []time.Duration
	for range m.rounds {
		d, err := m.time("demesne", "run", "--", "true")
		if err != nil {
			return err
		}
		runs = append(runs, d)
		time.Sleep(100 * time.Millisecond)
		if d, err = m.time("demesne", "run", "--", "true"); err != nil {
			return err
		}
		paused = append(paused, d)
		if d, err = m.time("demesne", "exec", id, "--", "true"); err != nil {
			return err
		}
		execs = append(execs, d)
		text, err := m.output("demesne", "exec", "--json", id, "--", "true")
		if err != nil {
			return err
		}
		if d := stage(text, "exec"); d > 0 {
			inside = append(inside, d)
		}
		if d, err = forked("true"); err != nil {
			return err
		}
		bare = append(bare, d)
	}
	m.atMost("demesne run -- true, runner alive, other commands just before", m.add("demesne run, runner alive", "single-id", runs), 7*time.Millisecond)
	m.atMost("demesne run -- true, runner alive, after a pause", m.add("demesne run, runner alive", "single-id, after 100 ms", paused), 7*time.Millisecond)
	m.atMost("demesne exec -- true", m.add("demesne exec", "", execs), 8*time.Millisecond)
	if len(inside) == 0 {
		m.limit("exec inside the protocol", false, "no stage \"exec\" in the trace", "<= 1.00 ms")
		return nil
	}
	m.add("fork and execve of true", "no sandbox: what of the next figure is the kernel's", bare)
	m.atMost("exec inside the protocol, p50", m.add("exec inside the protocol", "stage \"exec\" of --json", inside), time.Millisecond)
	return nil
}

// forked returns the time to start a program without a sandbox, as PID 1 of a sandbox starts a command.
func forked(name string) (time.Duration, error) {
	path := find(name)
	start := time.Now()
	pid, err := syscall.ForkExec(path, []string{name}, &syscall.ProcAttr{})
	d := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return d, err
}

// stage returns the time of one stage in a result's trace, or 0.
func stage(text, name string) time.Duration {
	var r struct {
		Trace []struct {
			Name string
			MS   float64
		}
	}
	if json.Unmarshal([]byte(text), &r) != nil {
		return 0
	}
	for _, s := range r.Trace {
		if s.Name == name {
			return time.Duration(s.MS * float64(time.Millisecond))
		}
	}
	return 0
}

// many creates 100 sandboxes at once, first those of demesne, then those of demesne and its peers in turn.
func many(m *machine) error {
	const name = "100 at once"
	if err := crowd(m, name); err != nil {
		return err
	}
	jobs, err := m.jobs()
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j job) bool {
		return !slices.Contains([]string{"demesne run, in a loop", "bwrap", "runc run"}, j.name)
	})
	meter := newMeter(m)
	defer meter.close()
	walls, costs := map[string][]time.Duration{}, map[string][]time.Duration{}
	for range 5 {
		for _, j := range jobs {
			wall, cpu, err := meter.crowd(j, 100)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, j.name, err)
			}
			walls[j.name], costs[j.name] = append(walls[j.name], wall), append(costs[j.name], cpu)
		}
	}
	for _, j := range jobs {
		m.add(name+", all: "+j.name, "", walls[j.name])
		m.add(name+", CPU of all: "+j.name, meter.how, costs[j.name])
	}
	return nil
}

// crowd creates 100 sandboxes at once, with the given flags.
func crowd(m *machine, name string, flags ...string) error {
	argv := append(append([]string{"demesne", "run"}, flags...), "--", "true")
	if err := alone(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var times []time.Duration
	n, start := 0, time.Now()
	for range 100 {
		wg.Go(func() {
			d, err := m.time(argv...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				n, failed = n+1, err
			} else {
				times = append(times, d)
			}
		})
	}
	wg.Wait()
	total := time.Since(start)
	if len(times) > 0 {
		m.add("each of "+name, "", times)
	}
	m.atMost(name, total, 1500*time.Millisecond)
	m.limit("… failing", n == 0, fmt.Sprint(n, " ", errText(failed)), "0")
	return nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// idle measures the cost of 50 idle sandboxes.
func idle(m *machine) error {
	if err := alone(); err != nil {
		return err
	}
	var ids []string
	for range 50 {
		id, err := m.output("demesne", "create")
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	defer func() { m.output(append([]string{"demesne", "rm"}, ids...)...) }()
	time.Sleep(300 * time.Millisecond)
	var inits, runner []float64
	for _, p := range family() {
		pss, err := pss(p.pid)
		if err != nil {
			m.limit("idle PSS", false, "not readable: run make bench as root", "<= 1.50 MiB")
			return nil
		}
		switch {
		case strings.HasSuffix(p.name, "demesne-init"):
			inits = append(inits, pss)
		case p.name == "demesne-runner":
			runner = append(runner, pss)
		}
	}
	if len(inits) != 50 || len(runner) != 1 {
		return fmt.Errorf("measure idle: %d inits and %d runners for 50 sandboxes", len(inits), len(runner))
	}
	slices.Sort(inits)
	m.limit("idle sandbox, PSS (median of 50)", inits[25] <= 1.5, fmt.Sprintf("%.2f MiB", inits[25]), "<= 1.50 MiB")
	m.limit("runner with 50 of them, PSS", runner[0] <= 15, fmt.Sprintf("%.2f MiB", runner[0]), "<= 15 MiB")
	return nil
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
func streams(m *machine) error {
	const size = 4 << 30
	dd := []string{"dd", "if=/dev/zero", "bs=1M", "count=4096", "status=none"}
	rate := func(argv ...string) (float64, error) {
		cmd := m.command(argv...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, make([]byte, 1<<20))
		d := time.Since(start)
		if werr := cmd.Wait(); err != nil || werr != nil || n != size {
			return 0, fmt.Errorf("stream stdout: %d bytes of %d: %v, %v", n, int64(size), err, werr)
		}
		return float64(n) / 1e9 / d.Seconds(), nil
	}
	direct, err := rate(append([]string{find("dd")}, dd[1:]...)...)
	if err != nil {
		return err
	}
	inside, err := rate(append([]string{"demesne", "run", "--"}, dd...)...)
	if err != nil {
		return err
	}
	m.limit("stdout through the sandbox", inside >= 1, fmt.Sprintf("%.2f GB/s (a bare pipe: %.2f)", inside, direct), ">= 1 GB/s")
	cmd := m.command("demesne", "run", "-i", "--", "wc", "-c")
	cmd.Stdin = io.LimitReader(zeros{}, 1<<30)
	out, err := cmd.Output()
	got := string(bytes.TrimSpace(out))
	m.limit("cat 1 GiB | demesne run -i -- wc -c", err == nil && got == "1073741824", got+" "+errText(err), "1073741824")
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
