package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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
	ids    []string
	runner int // its pid
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
	m.env = []string{"DEMESNE_LINGER=0", "DEMESNE_SANDBOX_ROOT=" + m.dir + "/h/s", "DEMESNE_MAX_SANDBOXES=" + strconv.Itoa(m.live+burst+2)}
	defer func() { m.env = nil }()
	c := &crowded{machine: m}
	defer func() { c.remove(c.ids) }()
	first, err := c.output("demesne", "create")
	if err != nil {
		return err
	}
	if c.ids = []string{first}; m.live < 20 {
		return fmt.Errorf("measure %d sandboxes: fewer than 20", m.live)
	}
	if err := c.calls("1"); err != nil {
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
	spent, rest := c.spent(), len(c.ids)-1
	err = c.remove(c.ids[1:])
	m.add("demesne rm, each", fmt.Sprintf("%d in one call; %s of processors each", rest, c.each(spent, rest)), []time.Duration{time.Since(start) / time.Duration(rest)})
	c.ids = c.ids[:1] // the runner stays
	return errors.Join(err, c.atOnce())
}

// fill creates the sandboxes, one after the other.
func (c *crowded) fill() error {
	tenth := max(c.live/10, 2)
	costs := map[int]time.Duration{}
	for len(c.ids) < c.live {
		from, spent := len(c.ids), c.spent()
		var times []time.Duration
		for len(c.ids) < min(from+tenth, c.live) {
			start := time.Now()
			id, err := c.output("demesne", "create")
			if err != nil {
				return fmt.Errorf("after %d sandboxes: %w", len(c.ids), err)
			}
			times, c.ids = append(times, time.Since(start)), append(c.ids, id)
		}
		costs[from] = (c.spent() - spent) / time.Duration(len(times))
		c.add("demesne create", fmt.Sprintf("beside %d; %s of processors each", from, ms(costs[from])), times)
	}
	c.ratio("processors' time of demesne create, the last tenth against the first", costs[slices.Max(slices.Collect(maps.Keys(costs)))], costs[1], 2)
	return nil
}

// sizes reports what the live sandboxes use.
func (c *crowded) sizes(before map[string]float64) error {
	sum, number, runner := map[string]float64{}, map[string]int{}, c.runner
	for _, p := range family() {
		name := strings.TrimPrefix(p.name, ".")
		size, err := pss(p.pid)
		if err != nil {
			continue // it has ended, or this user may not read it
		}
		sum[name], number[name] = sum[name]+size, number[name]+1
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

// spent returns the processors' time of the commands that ended and of the runner, with the sandboxes that it removed.
func (c *crowded) spent() time.Duration {
	for _, p := range family() {
		if p.name == "demesne-runner" && (c.runner == 0 || memory(p.pid, "RssAnon:") > memory(c.runner, "RssAnon:")) {
			c.runner = p.pid
		}
	}
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.runner))
	sum := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 14 {
		for _, ticks := range f[11:15] {
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// each returns the processors' time of one of n commands since spent.
func (c *crowded) each(since time.Duration, n int) string {
	return ms((c.spent() - since) / time.Duration(n))
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
		spent := c.spent()
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
		c.add(strings.Join(argv, " "), fmt.Sprintf("%s live; %s of processors each", note, c.each(spent, len(times))), times)
	}
	return nil
}

// loops lets many callers run commands, one after the other each.
func (c *crowded) loops() error {
	var mu sync.Mutex
	var times []time.Duration
	spent := c.spent()
	took, failed := together(looping, func(int) (failed error) {
		for range rounds {
			d, err := c.time("demesne", "run", "--", "true")
			mu.Lock()
			times = append(times, d)
			mu.Unlock()
			failed = errors.Join(failed, err)
		}
		return failed
	})
	c.add("demesne run, 64 callers in loops", fmt.Sprintf("%d live; %.1f a second; %s of processors each", c.live, looping*rounds/took.Seconds(), c.each(spent, len(times))), times)
	c.limit("… failing", len(failed) == 0, count(len(failed), failed), "0")
	return nil
}

// atOnce creates many sandboxes at the same time.
func (c *crowded) atOnce() error {
	ids, times := make([]string, burst), make([]time.Duration, burst)
	start, spent := time.Now(), c.spent()
	_, failed := together(burst, func(i int) (err error) {
		ids[i], err = c.output("demesne", "create")
		times[i] = time.Since(start)
		return err
	})
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	c.ids = append(c.ids, ids...)
	c.add(fmt.Sprintf("demesne create, %d at once", burst), fmt.Sprintf("all: %s; %s of processors each", ms(slices.Max(times)), c.each(spent, burst)), times)
	c.limit("… failing", len(ids) == burst, count(len(failed), failed), "0")
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
