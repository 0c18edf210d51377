package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/integration/fixture"
)

// around records the state of the machine that a sandbox could change outside the test's box.
type around struct{ mounts, nets, groups []string }

func lookAround() around {
	return around{mounts: mountPoints(), nets: names("/sys/class/net"), groups: controlGroups()}
}

// checkLeaks reports what demesne left behind. It waits, because the reaper runs after the caller has its answer. State
// outside the box that vanishes between two looks belongs to other users of a busy machine, and is not reported.
func (b *box) checkLeaks() {
	b.Helper()
	end := time.Now().Add(patience)
	var left []string
	fixture.Poll(patience, func() bool { left = b.leaks(); return len(left) == 0 })
	outside := b.outside()
	fixture.Poll(time.Until(end), func() bool {
		if len(outside) > 0 {
			now := b.outside()
			outside = slices.DeleteFunc(outside, func(x string) bool { return !slices.Contains(now, x) })
		}
		return len(outside) == 0
	})
	if left = append(left, outside...); len(left) > 0 {
		b.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	var groups []string // which no reaper removes now; other tests would find them
	for _, p := range descendants() {
		groups = append(groups, p.cleans()...)
		unix.Kill(p.pid, unix.SIGKILL)
	}
	for _, g := range groups {
		fixture.Poll(time.Second, func() bool {
			err := os.Remove(g)
			return err == nil || errors.Is(err, fs.ErrNotExist)
		})
	}
}

// leaks lists leftovers that only demesne can have made.
func (b *box) leaks() (left []string) {
	for _, p := range descendants() {
		left = append(left, "process "+p.String())
	}
	return append(left, b.droppings()...)
}

// outside lists new state of the machine since the test began.
func (b *box) outside() (left []string) {
	now := lookAround()
	for _, l := range []struct {
		what       string
		then, now_ []string
	}{{"mount", b.before.mounts, now.mounts}, {"interface", b.before.nets, now.nets}, {"control group", b.before.groups, now.groups}} {
		for _, x := range l.now_ {
			if !slices.Contains(l.then, x) && (l.what == "interface" || b.mine(x)) {
				left = append(left, l.what+" "+x)
			}
		}
	}
	return left
}

// mine reports whether this test could have made s, rather than another user of a busy machine.
func (b *box) mine(s string) bool {
	return strings.Contains(s, b.dir) || strings.Contains(s, "demesne")
}

// droppings lists undocumented files in the run and home directories. The run directory keeps records of ended
// sandboxes (a bounded number), and home keeps outputs, caches, what was typed, the host key of ssh and the last rules of --egress.
func (b *box) droppings() (left []string) {
	for _, run := range []string{b.run, b.home + "/.demesne/run"} {
		filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(run, path)
			rel = strings.TrimPrefix(rel, "demesne/")
			if err == nil && !slices.Contains([]string{".", "demesne", "mnt", "state", "state/ended", "scratch", "grants"}, rel) && !strings.HasPrefix(rel, "state/ended/") {
				left = append(left, "file "+path)
			}
			return nil
		})
	}
	for _, n := range names(b.dir + "/k") {
		left = append(left, "files of sandbox "+n)
	}
	for _, n := range names(b.home + "/.demesne/changes") {
		left = append(left, "changes "+n)
	}
	for _, kind := range []string{"sandboxes", "snapshots", "uploads"} {
		for _, n := range names(b.home + "/.demesne/server/e2b/" + kind) {
			left = append(left, "the server's record "+n)
		}
	}
	for _, d := range []string{b.home, b.home + "/.demesne"} {
		for _, n := range names(d) {
			kept := slices.Contains([]string{".demesne", "out", "run", "egress-rules.json", "cache", "changes", "vault", "repl", "server", "audit", "host", "ssh", "projects"}, n)
			if n == "jobs" { // a server opens the store, which makes the directory of slots
				kept = slices.Equal(names(d+"/jobs"), []string{"slots"})
			}
			if !kept {
				left = append(left, "file "+d+"/"+n)
			}
		}
	}
	return left
}

// process is a line of /proc/PID/stat.
type process struct {
	pid, ppid int
	state     byte
	name      string
}

// cmdline returns the arguments, each with a NUL behind it. It is empty for a process that has ended.
func (p process) cmdline() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return string(b)
}

func (p process) String() string {
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.pid))
	return fmt.Sprintf("%d (%s, parent %d, state %c in %s) %q", p.pid, p.name, p.ppid, p.state, wchan, p.cmdline())
}

func processes() (all []process) {
	for _, n := range names("/proc") {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + n + "/stat")
		open, shut := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
		if err != nil || open < 0 || shut < 0 {
			continue
		}
		f := strings.Fields(string(stat[shut+1:]))
		ppid, _ := strconv.Atoi(f[1])
		p := process{pid, ppid, f[0][0], string(stat[open+1 : shut])}
		if threads, _ := strconv.Atoi(f[17]); p.state == 'Z' && threads > 1 { // the others still have its files and locks
			p.state = 'R'
		}
		all = append(all, p)
	}
	return all
}

// descendants lists the living descendants of the test process, a subreaper. It reaps dead orphans.
func descendants() (out []process) {
	if childless() {
		return nil
	}
	return descendantsOf(os.Getpid())
}

// childless reports whether the test process has no children. A subreaper without children has no descendants, so that most looks
// need not read all of /proc.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}

// awaited returns the children that package os has started and not reaped: it has a pidfd of each. Reaped by another, they have no
// exit status for a test that waits.
func awaited() map[int]bool {
	all := map[int]bool{}
	for _, n := range names("/proc/self/fdinfo") {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + n)
		if _, after, ok := strings.Cut(string(info), "\nPid:\t"); ok {
			line, _, _ := strings.Cut(after, "\n")
			pid, _ := strconv.Atoi(line)
			all[pid] = true
		}
	}
	return all
}

// family lists the descendants of a process, also dead ones, and reaps none.
func family(root int) []process {
	all := processes()
	members := map[int]bool{root: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if members[p.ppid] && !members[p.pid] {
				members[p.pid], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(p process) bool { return p.pid == root || !members[p.pid] })
}

func descendantsOf(root int) (out []process) {
	ours := sync.OnceValue(awaited)
	for _, p := range family(root) {
		switch {
		case p.state == 'Z' && p.ppid == os.Getpid():
			if !ours()[p.pid] {
				unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
			}
		case p.state != 'Z':
			out = append(out, p)
		}
	}
	return out
}

func mountPoints() []string {
	raw, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// controlGroups lists demesne's control groups by name, except those with processes and those that a living
// reaper will remove.
func controlGroups() (all []string) {
	theirs := sync.OnceValue(reaped)
	groupsBelow("/sys/fs/cgroup", func(path string) {
		if strings.Contains(filepath.Base(path), "demesne") && ownedByUs(path) && !theirs()[path] && !inhabited(path) {
			all = append(all, path)
		}
	})
	return all
}

// groupsBelow calls f with each directory below dir. It does not read directories with two links, which have no
// subdirectory: most are such, and each has twenty files.
func groupsBelow(dir string, f func(path string)) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Nlink == 2 {
		return
	}
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	entries, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range entries {
		if e.IsDir() {
			f(dir + "/" + e.Name())
			groupsBelow(dir+"/"+e.Name(), f)
		}
	}
}

// ownedByUs reports whether the tests' user owns a control group. Root's tests run beside an ordinary user's.
func ownedByUs(group string) bool {
	info, err := os.Lstat(group)
	return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// reaped returns the paths that living reapers will remove. A reaper that this test leaked is reported as a
// process.
func reaped() map[string]bool {
	all := map[string]bool{}
	for _, p := range processes() {
		for _, path := range p.cleans() {
			all[path] = true
		}
	}
	return all
}

// cleans returns the paths that a reaper will remove.
func (p process) cleans() (paths []string) {
	if p.name != "demesne-reaper" {
		return nil
	}
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	for v := range strings.SplitSeq(string(env), "\x00") {
		if list, ok := strings.CutPrefix(v, "_DEMESNE_CLEAN="); ok {
			paths = append(paths, strings.Split(list, "\n")...)
		}
	}
	return paths
}

// inhabited reports whether a group or one of its subgroups has processes. Processes that this test leaked are
// reported as processes.
func inhabited(group string) (yes bool) {
	filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			text, _ := os.ReadFile(path)
			yes = yes || len(text) > 0
		}
		return nil
	})
	return yes
}

func names(dir string) (all []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
