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
	"time"

	"golang.org/x/sys/unix"
)

const (
	burst   = 200 // sandboxes created at once
	looping = 64  // callers in loops
	rounds  = 4   // commands of each of them
)

// crowded is a machine on which many sandboxes live.
type crowded struct {
	*machine
	ids []string
}

// thousands measures many live idle sandboxes: what each of them costs, and what they cost the calls of others.
func thousands(m *machine) error {
	if os.Getuid() == 0 { // an ordinary user gets the hard limit of its machine
		most := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &most)
	}
	if m.asRoot {
		m.uid = -1
	}
	if err := alone(); err != nil {
		return err
	}
	m.env = []string{"DEMESNE_LINGER=0", "DEMESNE_SANDBOX_ROOT=" + m.dir + "/h/s", "DEMESNE_MAX_SANDBOXES=" + strconv.Itoa(m.live+burst)}
	defer func() { m.env = nil }()
	c := &crowded{machine: m}
	defer func() { c.remove(c.ids) }()
	if err := c.calls("a few"); err != nil {
		return err
	}
	before := kernelMemory()
	if err := c.fill(); err != nil {
		return err
	}
	if err := c.sizes(before); err != nil {
		return err
	}
	if err := c.calls(strconv.Itoa(m.live)); err != nil {
		return err
	}
	if err := c.loops(); err != nil {
		return err
	}
	start := time.Now()
	err := c.remove(c.ids)
	m.rows = append(m.rows, row{Name: "demesne rm, each", Median: time.Since(start) / time.Duration(m.live), Note: fmt.Sprintf("%d in one call", m.live)})
	c.ids = nil
	return errors.Join(err, c.atOnce())
}

// fill creates the sandboxes, one after the other.
func (c *crowded) fill() error {
	var times []time.Duration
	for range c.live {
		start := time.Now()
		id, err := c.output("demesne", "create")
		if err != nil {
			return fmt.Errorf("after %d sandboxes: %w", len(c.ids), err)
		}
		times, c.ids = append(times, time.Since(start)), append(c.ids, id)
	}
	tenth := max(c.live/10, 1)
	last := slices.Clone(times[c.live-tenth:])
	first := c.add("demesne create", fmt.Sprintf("the first %d", tenth), times[:tenth])
	c.ratio("demesne create, the last tenth against the first", c.add("demesne create", fmt.Sprintf("the last %d of %d", tenth, c.live), last), first, 2)
	return nil
}

// sizes reports what the live sandboxes use.
func (c *crowded) sizes(before map[string]float64) error {
	sum, number := map[string]float64{}, map[string]int{}
	runner := 0
	for _, p := range family() {
		name := strings.TrimPrefix(p.name, ".")
		size, err := pss(p.pid)
		if err != nil {
			continue // it has ended, or this user may not read it
		}
		if sum[name] += size; name == "demesne-runner" && number[name] == 0 {
			runner = p.pid
		}
		if number[name]++; name == "demesne-runner" && memory(p.pid, "RssAnon:") > memory(runner, "RssAnon:") {
			runner = p.pid
		}
	}
	n := float64(c.live)
	for _, name := range []string{"demesne-init", "demesne-runner", "demesne-proxy"} {
		c.figure("PSS of "+name, fmt.Sprintf("%d processes, %.1f MiB, %.3f MiB a sandbox", number[name], sum[name], sum[name]/n))
	}
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", runner))
	c.limit("descriptors of the runner", float64(len(files)) <= 16*n+64, fmt.Sprintf("%d, %.1f a sandbox", len(files), float64(len(files))/n), "<= 16 a sandbox")
	after := kernelMemory()
	for _, name := range kernelLines {
		c.figure(name, fmt.Sprintf("%+.1f MiB, %.3f MiB a sandbox", after[name]-before[name], (after[name]-before[name])/n))
	}
	const watched = 10 * time.Second
	from := ticks(runner)
	time.Sleep(watched)
	share := float64(ticks(runner)-from) / watched.Seconds() // of a hundredth of a processor
	c.limit("runner's processor time, all sandboxes idle", share <= 10, fmt.Sprintf("%.1f %% of a processor, %.3f %% a sandbox", share, share/n), "<= 10 %")
	return nil
}

// figure reports a figure without a bound.
func (c *crowded) figure(name, text string) {
	c.rows = append(c.rows, row{Name: name, Note: text})
	fmt.Fprintf(os.Stderr, "bench: %s: %s\n", name, text)
}

// kernelLines are the lines of /proc/meminfo that hold what the kernel keeps for processes, mounts and namespaces.
var kernelLines = []string{"MemAvailable", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu"}

// kernelMemory returns the lines in MiB.
func kernelMemory() map[string]float64 {
	raw, _ := os.ReadFile("/proc/meminfo")
	sizes := map[string]float64{}
	for line := range bytes.Lines(raw) {
		if f := strings.Fields(string(line)); len(f) > 1 {
			kib, _ := strconv.ParseFloat(f[1], 64)
			sizes[strings.TrimSuffix(f[0], ":")] = kib / 1024
		}
	}
	return sizes
}

// calls times commands beside the live sandboxes.
func (c *crowded) calls(note string) error {
	id, err := c.output("demesne", "create", "--name", "called")
	if err != nil {
		return err
	}
	defer c.output("demesne", "rm", id)
	for _, argv := range [][]string{{"demesne", "exec", "called", "--", "true"}, {"demesne", "run", "--", "true"}, {"demesne", "ls"}, {"demesne", "create", "--name", "second"}} {
		var times []time.Duration
		for range max(c.rounds/4, 5) {
			d, err := c.time(argv...)
			if err == nil && slices.Contains(argv, "second") {
				_, err = c.output("demesne", "rm", "second")
			}
			if err != nil {
				return err
			}
			times = append(times, d)
		}
		c.add(strings.Join(argv, " "), note+" live", times)
	}
	return nil
}

// loops lets many callers run commands, one after the other each.
func (c *crowded) loops() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var times []time.Duration
	start := time.Now()
	for range looping {
		wg.Go(func() {
			for range rounds {
				d, err := c.time("demesne", "run", "--", "true")
				mu.Lock()
				times, failed = append(times, d), errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	c.add("demesne run, 64 callers in loops", fmt.Sprintf("%d live; %.1f a second", c.live, looping*rounds/time.Since(start).Seconds()), times)
	c.limit("… failing", failed == nil, errText(failed), "")
	return nil
}

// atOnce creates many sandboxes at the same time.
func (c *crowded) atOnce() error {
	var wg sync.WaitGroup
	ids, errs, times := make([]string, burst), make([]error, burst), make([]time.Duration, burst)
	start := time.Now()
	for i := range burst {
		wg.Go(func() {
			ids[i], errs[i] = c.output("demesne", "create")
			times[i] = time.Since(start)
		})
	}
	wg.Wait()
	c.ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	c.add(fmt.Sprintf("demesne create, %d at once", burst), fmt.Sprintf("all: %s", ms(slices.Max(times))), times)
	c.limit("… failing", len(c.ids) == burst, errText(errors.Join(errs...)), "")
	return nil
}

// remove removes sandboxes in one call.
func (c *crowded) remove(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := c.output(append([]string{filepath.Join(c.bin, "demesne"), "rm"}, ids...)...)
	return err
}
