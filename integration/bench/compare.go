package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
func peers(m *machine) {
	c := &m.table
	c.columns, c.cells = []string{"demesne", "bwrap", "podman", "srt"}, map[[2]string]string{}
	commands := map[string][]string{"demesne": {"demesne", "run", "--", "true"}, "bwrap": bubblewrap(), "podman": must(m.podman()), "srt": m.comparedSrt("true")}
	networked := map[string][]string{"demesne": {"demesne", "run", "--allow-domain", "good.test", "--", "true"}, "srt": commands["srt"]}
	const cold, linger = "DEMESNE_LINGER=0", "DEMESNE_LINGER=10s"
	defer func() { m.env = nil }()
	for _, line := range []struct {
		name, env string
		commands  map[string][]string
		measure   func(line string, commands map[string][]string)
	}{
		{"the first command", cold, commands, m.turns},
		{"a command in a loop", linger, commands, m.turns},
		{"20 commands at once, each", linger, commands, m.twentyAtOnce},
		{"a command with one name allowed, in a loop", linger, networked, m.turns},
	} {
		m.env = []string{line.env}
		line.measure(line.name, line.commands)
		must(m.output("demesne", "gc", "--runner"))
	}
	check(m.endPodman())
}

// turns times every command once a round, and writes the medians.
func (m *machine) turns(line string, commands map[string][]string) {
	before := atOnce
	if slices.Contains(m.env, "DEMESNE_LINGER=0") {
		before = noRunner
	}
	var entries []entry
	for _, column := range m.table.columns {
		entries = append(entries, entry{name: line + ": " + column, run: m.timed(commands[column]...), enough: 10})
	}
	took := m.race(m.rounds, coldRounds, before, entries...)
	for _, column := range m.table.columns {
		if d := took[line+": "+column]; d > 0 {
			m.table.set(line, column, d)
		}
	}
}

// twentyAtOnce starts 20 commands of each program at once, and writes a twentieth of the time that they take.
func (m *machine) twentyAtOnce(line string, commands map[string][]string) {
	const n = 20
	for _, column := range m.table.columns {
		argv := commands[column]
		if len(argv) == 0 {
			continue
		}
		m.table.set(line, column, m.repeated(5, line+": "+column, "", func() time.Duration {
			took, failed := together(n, func(int) error { _, err := m.time(argv...); return err })
			check(errors.Join(failed...))
			return took / n
		}))
	}
}

// noRunner waits until no runner is left.
func noRunner() error {
	return gone(func(r relative) bool { return r.name == "demesne-runner" })
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
