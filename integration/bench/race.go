package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A part stops at its first error, as a test does: check and must panic with it, and attempt returns it after the
// deferred clean-ups have run. Goroutines return their errors instead.
type stopped struct{ error }

func check(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// attempt calls do, and returns the error that stopped it.
func attempt(do func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case stopped:
			err = e.error
		default:
			panic(e)
		}
	}()
	do()
	return nil
}

// entry is one of the cases that take turns in a race.
type entry struct {
	name, note string
	run        func() time.Duration // nil: a peer that is not installed here
	enough     int                  // rounds that are enough where each takes more than 100 ms; 0: all of them
}

// coldRounds is how many rounds of a race do not count: they read the programs from disk, and start a runner.
const coldRounds = 3

// race times entries, which take turns, and returns their medians by name. It calls before ahead of each run.
func (m *machine) race(rounds, uncounted int, before func() error, entries ...entry) map[string]time.Duration {
	times, medians := map[string][]time.Duration{}, map[string]time.Duration{}
	shown := time.Now()
	for i := range rounds + uncounted {
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(os.Stderr, "bench: %s: round %d of %d\n", entries[0].name, i+1, rounds+uncounted)
		}
		for _, e := range entries {
			if e.run == nil || e.enough > 0 && i >= uncounted+e.enough && slow(times[e.name]) {
				continue
			}
			check(before())
			if d := e.run(); i >= uncounted {
				times[e.name] = append(times[e.name], d)
			}
		}
	}
	for _, e := range entries {
		if all := times[e.name]; len(all) > 0 {
			medians[e.name] = m.add(e.name, e.note, all)
		}
	}
	return medians
}

// cold is a race of entries that each start a runner: an earlier runner ends at once, and each run waits for its end.
func (m *machine) cold(rounds int, entries ...entry) map[string]time.Duration {
	env := m.env
	defer func() { m.env = env }()
	m.env = append(slices.Clip(env), "DEMESNE_LINGER=0")
	return m.race(rounds, coldRounds, alone, entries...)
}

// slow reports whether a few rounds are enough, because each takes long.
func slow(times []time.Duration) bool { return len(times) > 0 && times[0] > 100*time.Millisecond }

// A race calls one of these before each run. They do nothing, or write out the files of the previous run.
func atOnce() error { return nil }
func synced() error { unix.Sync(); return nil }

// timed returns the run of a command for a race.
func (m *machine) timed(argv ...string) func() time.Duration {
	if len(argv) == 0 {
		return nil
	}
	return func() time.Duration { return must(m.time(argv...)) }
}

// repeated times one case alone, and returns its median.
func (m *machine) repeated(rounds int, name, note string, run func() time.Duration) time.Duration {
	return m.race(rounds, 0, atOnce, entry{name: name, note: note, run: run})[name]
}

// together calls do n times at once, and returns how long that took, and the errors of the calls that failed.
func together(n int, do func(i int) error) (took time.Duration, failed []error) {
	var wg sync.WaitGroup
	errs, start := make([]error, n), time.Now()
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return time.Since(start), slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// since returns the time that do takes.
func since(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// median returns the middle value, and sorts all.
func median[T int64 | float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// peaks calls do, and returns the most memory that each descendant program held meanwhile, in MiB: by its name, and
// under "" for all of them together.
func peaks(every time.Duration, do func()) map[string]float64 {
	done, result := make(chan struct{}), make(chan map[string]float64)
	go func() {
		most := map[string]float64{}
		for {
			sum := 0.0
			for _, p := range family() {
				v := anonymous(p.pid)
				sum, most[p.name] = sum+v, max(most[p.name], v)
			}
			most[""] = max(most[""], sum)
			select {
			case <-done:
				result <- most
				return
			case <-time.After(every):
			}
		}
	}()
	err := attempt(do)
	close(done)
	most := <-result
	check(err)
	return most
}

// mib records an upper bound on memory. A program that was never seen exceeds it.
func (m *machine) mib(name string, got, want float64) {
	m.limit(name, got > 0 && got <= want, fmt.Sprintf("%.0f MiB", got), fmt.Sprintf("<= %.0f MiB", want))
}

// found runs a command, and reads the JSON that it prints.
func found[T any](cmd *exec.Cmd) (v T) {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		check(fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out))
	}
	return v
}

// benchmark runs a benchmark of another package, and returns its output.
func (m *machine) benchmark(pkg, name, benchtime string, env ...string) string {
	program := filepath.Join(m.bin, filepath.Base(pkg)+".test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, pkg).CombinedOutput(); err != nil {
		check(fmt.Errorf("build the benchmark %s: %w: %s", name, err, out))
	}
	cmd := m.command(program, "-test.run=^$", "-test.bench=^"+name+"$", "-test.benchtime="+benchtime, "-test.timeout=20m")
	cmd.Env = append(append(cmd.Env, "DEMESNE_BIN="+m.bin), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		check(fmt.Errorf("run the benchmark %s: %w: %s", name, err, out))
	}
	return string(out)
}

// figure is a case that another program measured: the key of its times, and its row.
type figure struct{ key, name, note string }

// addAll records the figures that were measured, and returns their medians by key.
func (m *machine) addAll(times map[string][]time.Duration, figures ...figure) map[string]time.Duration {
	medians := map[string]time.Duration{}
	for _, f := range figures {
		if all := times[f.key]; len(all) > 0 {
			medians[f.key] = m.add(f.name, f.note, all)
		}
	}
	return medians
}

// durations converts numbers of a unit.
func durations(all []float64, unit time.Duration) []time.Duration {
	out := make([]time.Duration, len(all))
	for i, v := range all {
		out[i] = time.Duration(v * float64(unit))
	}
	return out
}
