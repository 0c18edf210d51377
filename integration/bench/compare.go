package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// comparison is the table of figures in README.md: demesne and its peers, on /bin/true.
type comparison struct {
	columns []string
	lines   []string
	cells   map[[2]string]string // by line and column
}

// peers fills the comparison. All programs run as one user, each in a sandbox with the host's /usr and no network but
// for the last line, and they take turns. Peers that are not installed, or fail here, have no figures.
func peers(m *machine) error {
	c := &m.table
	c.columns, c.cells = []string{"demesne", "bwrap", "podman", "srt"}, map[[2]string]string{}
	commands := map[string][]string{"demesne": {"demesne", "run", "--", "true"}, "bwrap": bubblewrap()}
	var err error
	if commands["podman"], err = m.podman(); err != nil {
		return err
	}
	if commands["srt"], err = m.srt("true"); err != nil {
		return err
	}
	if commands["srt"] == nil {
		fmt.Fprintln(os.Stderr, "bench: srt: not compared (npm install -g @anthropic-ai/sandbox-runtime; it needs bwrap, socat and ripgrep)")
	}
	networked := map[string][]string{"demesne": {"demesne", "run", "--allow-domain", "good.test", "--", "true"}, "srt": commands["srt"]}
	const no, linger = "DEMESNE_LINGER=0", "DEMESNE_LINGER=10s"
	return errors.Join(
		m.turns("the first command", commands, no),
		m.turns("a command in a loop", commands, linger),
		m.together("20 commands at once, each", commands, linger),
		m.turns("a command with one name allowed, in a loop", networked, linger),
		m.endPodman())
}

// turns times every command once a round, and writes the medians.
func (m *machine) turns(line string, commands map[string][]string, env string) error {
	times := map[string][]time.Duration{}
	m.env = []string{env}
	defer func() { m.env = nil }()
	for i := range m.rounds + 3 {
		for _, name := range m.table.columns {
			if len(commands[name]) == 0 || i >= 13 && slow(times[name]) {
				continue
			}
			d, err := m.time(commands[name]...)
			if err != nil {
				return err
			}
			if i >= 3 { // the first rounds read the programs from disk, and start the runner of a loop
				times[name] = append(times[name], d)
			}
			if err := noRunner(env); err != nil {
				return err
			}
		}
	}
	for _, name := range m.table.columns {
		if all := times[name]; len(all) > 0 {
			m.table.set(line, name, m.add(line+": "+name, "", all))
		}
	}
	_, err := m.output("demesne", "gc", "--runner")
	return err
}

// slow reports whether ten rounds are enough, because each takes long.
func slow(times []time.Duration) bool { return len(times) > 0 && times[0] > 100*time.Millisecond }

// together starts 20 commands of each program at once, and writes a twentieth of the time that they take.
func (m *machine) together(line string, commands map[string][]string, env string) error {
	const n = 20
	m.env = []string{env}
	defer func() { m.env = nil }()
	for _, name := range m.table.columns {
		if len(commands[name]) == 0 {
			continue
		}
		var all []time.Duration
		for range 5 {
			var wg sync.WaitGroup
			failed, start := make([]error, n), time.Now()
			for i := range n {
				wg.Go(func() { _, failed[i] = m.time(commands[name]...) })
			}
			wg.Wait()
			if err := errors.Join(failed...); err != nil {
				return err
			}
			all = append(all, time.Since(start)/n)
		}
		m.table.set(line, name, m.add(line+": "+name, "", all))
	}
	_, err := m.output("demesne", "gc", "--runner")
	return err
}

// noRunner waits until no runner is left, unless env says that it lingers.
func noRunner(env string) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if env != "DEMESNE_LINGER=0" || !slices.ContainsFunc(family(), func(r relative) bool { return r.name == "demesne-runner" }) {
			return nil
		}
	}
	return errors.New("a runner did not end")
}

// podman returns the command line that runs /bin/true in podman on a tree like demesne's host image, or nil. podman
// runs without subordinate ids, as demesne does here.
func (m *machine) podman() ([]string, error) {
	p := find("podman")
	if p == "" {
		return nil, nil
	}
	root := filepath.Join(m.dir, "podman")
	for _, d := range []string{"", "usr", "proc", "sys", "dev", "tmp", "etc", "run", "var"} {
		if err := m.own(filepath.Join(root, d)); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return nil, err
		}
	}
	argv := []string{p, "--log-level", "error", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"}
	run := []string{"run", "--rm", "--network", "none", "--log-driver", "none", "-v", "/usr:/usr:ro", "--rootfs", root, "/bin/true"}
	var failed error
	for _, runtime := range []string{"crun", "runc"} { // crun cannot use both versions of control groups at once
		if r := find(runtime); r != "" {
			all := append(append(slices.Clone(argv), "--runtime", r), run...)
			if _, failed = m.time(all...); failed == nil {
				return all, nil
			}
		}
	}
	fmt.Fprintln(os.Stderr, "bench: podman: not compared:", failed)
	return nil, nil
}

// own makes a directory that belongs to the user of the programs.
func (m *machine) own(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if m.uid >= 0 {
		err = errors.Join(err, os.Chown(dir, m.uid, m.uid))
	}
	return err
}

// endPodman ends the process with which rootless podman keeps its namespaces.
func (m *machine) endPodman() error {
	if p := find("podman"); p != "" {
		_, err := m.output(p, "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "system", "migrate")
		return err
	}
	return nil
}

func (c *comparison) set(line, column string, d time.Duration) {
	if !slices.Contains(c.lines, line) {
		c.lines = append(c.lines, line)
	}
	c.cells[[2]string{line, column}] = fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

// String returns the table in Markdown.
func (c *comparison) String() string {
	if len(c.lines) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n| | %s |\n|---|%s\n", strings.Join(c.columns, " | "), strings.Repeat("---|", len(c.columns)))
	for _, line := range c.lines {
		b.WriteString("| " + line)
		for _, column := range c.columns {
			cell := c.cells[[2]string{line, column}]
			if cell == "" {
				cell = "–"
			}
			b.WriteString(" | " + cell)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
