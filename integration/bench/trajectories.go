package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// The number of actions of each trajectory. One exec of podman takes as long as about 30 starts of bwrap.
const (
	trajectoryActions       = 50
	trajectoryActionsPodman = 2
)

// trajectories measures many agents at once: the package for Python executes a command, writes a file and reads it, in one
// sandbox for each agent. bwrap starts a sandbox for each action, and podman executes each in one container.
func trajectories(m *machine) {
	check(os.CopyFS(m.dir+"/package/demesne", os.DirFS("python/src/demesne")))
	check(copyFile("integration/bench/trajectories.py", m.dir+"/package/trajectories.py"))
	ours := m.trajectories("trajectories, demesne for Python", trajectoryActions, "demesne")
	var peer time.Duration
	if argv := bubblewrap(); argv != nil {
		argv = slices.Concat(argv[:1], []string{"--bind", "{}", "/own"}, argv[1:len(argv)-1])
		peer = m.trajectories("trajectories, bwrap for each action", trajectoryActions, "argv", argv...)
	}
	if argv, end := m.podmanExec(); argv != nil {
		defer end()
		slow := m.trajectories("trajectories, podman exec", trajectoryActionsPodman, "argv", argv...)
		fmt.Fprintf(os.Stderr, "bench: an action in podman: %.1f starts of bwrap\n", float64(slow)/float64(max(peer, 1)))
	}
	m.ratio("an action of a trajectory against one start of bwrap", ours, peer, 0.8)
}

// trajectories runs one case, and returns the processors' time for each action.
func (m *machine) trajectories(name string, actions int, mode string, argv ...string) time.Duration {
	words := append([]string{"/usr/bin/python3", m.dir + "/package/trajectories.py", mode, strconv.Itoa(m.trajectoryCount), strconv.Itoa(actions)}, argv...)
	cmd := m.command(words...)
	cmd.Env = append(cmd.Env, "PYTHONPATH="+m.dir+"/package", "DEMESNE_BIN="+filepath.Join(m.bin, "demesne"), "DEMESNE_MAX_SANDBOXES="+strconv.Itoa(m.trajectoryCount))
	r := found[struct {
		Made, Seconds float64
		Times         []float64
		Failures      int
		First         []string
	}](cmd)
	n := m.trajectoryCount * actions
	m.limit(name+", failures", r.Failures == 0 && len(r.Times) == n, fmt.Sprintf("%d of %d %v", r.Failures, n, r.First), "0")
	each := time.Duration(r.Seconds * float64(time.Second) * float64(runtime.NumCPU()) / float64(max(n, 1)))
	if len(r.Times) > 0 {
		note := fmt.Sprintf("%d at once, %d actions each: %.1f s, %s of processors an action; %.1f s before", m.trajectoryCount, actions, r.Seconds, ms(each), r.Made)
		m.add(name, note, durations(r.Times, time.Second))
		fmt.Fprintf(os.Stderr, "bench: %s: %s\n", name, note)
	}
	return each
}

// podmanExec starts a container, and returns the command line that executes a program in it; nil without podman.
func (m *machine) podmanExec() (argv []string, end func()) {
	run, err := m.podman()
	at := slices.Index(run, "run")
	if err != nil || at < 0 {
		return nil, nil
	}
	base, options := run[:at], run[at+1:len(run)-1] // without /bin/true
	const id = "trajectories"
	// Its monitor keeps the standard streams, so they are not read.
	if err := m.command(slices.Concat(base, []string{"run", "--detach", "--name", id}, options, []string{"/bin/sleep", "3600"})...).Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: podman: not compared:", err)
		return nil, nil
	}
	end = func() {
		m.output(slices.Concat(base, []string{"rm", "--force", "--time", "0", id})...)
		m.endPodman()
	}
	return slices.Concat(base, []string{"exec", id}), end
}
