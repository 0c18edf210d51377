package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// around is what the machine looks like: everything a sandbox could leave outside its box.
type around struct{ mounts, nets, groups []string }

func lookAround() around {
	return around{mounts: mountPoints(), nets: names("/sys/class/net"), groups: controlGroups()}
}

// checkLeaks gives what demesne left a minute to go away (the reaper runs after its caller has
// its answer), then reports it. What the machine has in one look and not in the next is somebody
// else's: on a busy one there is always something.
func (b *box) checkLeaks() {
	b.Helper()
	end := time.Now().Add(time.Minute)
	left := b.leaks()
	for ; len(left) > 0 && time.Now().Before(end); left = b.leaks() {
		time.Sleep(10 * time.Millisecond)
	}
	outside := b.outside()
	for len(outside) > 0 && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
		now := b.outside()
		outside = slices.DeleteFunc(outside, func(x string) bool { return !slices.Contains(now, x) })
	}
	if left = append(left, outside...); len(left) > 0 {
		b.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	for _, p := range descendants() {
		unix.Kill(p.pid, unix.SIGKILL)
	}
}

// leaks is what nobody else can have left.
func (b *box) leaks() (left []string) {
	for _, p := range descendants() {
		left = append(left, "process "+p.String())
	}
	return append(left, b.droppings()...)
}

// outside is what the machine has more than before.
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

// mine tells what this test could have made from what others do on a busy machine.
func (b *box) mine(s string) bool {
	return strings.Contains(s, b.dir) || strings.Contains(s, "demesne")
}

// droppings are files in the run and home directories that are not documented to stay:
// the run directory keeps what ended sandboxes were (a bounded number), home keeps outputs.
func (b *box) droppings() (left []string) {
	for _, run := range []string{b.run, b.home + "/.demesne/run"} {
		filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(run, path)
			rel = strings.TrimPrefix(rel, "demesne/")
			if err == nil && !slices.Contains([]string{".", "demesne", "mnt", "state", "state/ended", "scratch", "given"}, rel) && !strings.HasPrefix(rel, "state/ended/") {
				left = append(left, "file "+path)
			}
			return nil
		})
	}
	for _, n := range names(b.dir + "/k") {
		left = append(left, "files of sandbox "+n)
	}
	for _, d := range []string{b.home, b.home + "/.demesne"} {
		for _, n := range names(d) {
			if n != ".demesne" && n != "out" && n != "run" {
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

func (p process) String() string {
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.pid))
	return fmt.Sprintf("%d (%s, parent %d, state %c in %s) %q", p.pid, p.name, p.ppid, p.state, wchan, cmdline)
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
		all = append(all, process{pid, ppid, f[0][0], string(stat[open+1 : shut])})
	}
	return all
}

// descendants lists what the test process is the ancestor of. Dead orphans, which a
// subreaper has to bury, are buried.
func descendants() (out []process) { return descendantsOf(os.Getpid()) }

func descendantsOf(root int) (out []process) {
	all := processes()
	family := map[int]bool{root: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if family[p.ppid] && !family[p.pid] {
				family[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		switch {
		case p.pid == root || !family[p.pid]:
		case p.state == 'Z' && p.ppid == os.Getpid():
			unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
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

// controlGroups lists demesne's, by the name all of them have, but for those that
// somebody lives in or has yet to take away.
func controlGroups() (all []string) {
	theirs := reaped()
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), "demesne") && !theirs[path] && !inhabited(path) {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// reaped is what reapers that live are to remove. Ours, if they are left, are found as processes.
func reaped() map[string]bool {
	all := map[string]bool{}
	for _, p := range processes() {
		if p.name != "demesne-reaper" {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		for v := range strings.SplitSeq(string(env), "\x00") {
			paths, _ := strings.CutPrefix(v, "_DEMESNE_CLEAN=")
			for path := range strings.SplitSeq(paths, "\n") {
				all[path] = true
			}
		}
	}
	return all
}

// inhabited says that processes live in a group, or in one of its own. Ours, if they
// are left, are found as processes.
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
