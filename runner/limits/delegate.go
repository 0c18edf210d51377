package limits

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"demesne/runner/limits/cgroup"
)

// delegate makes the runner's own version 2 group usable. It moves all its processes to a leaf and delegates the
// controllers.
func delegate() (*hierarchy, error) {
	t := newThread()
	p := &hierarchy{version: 2, thread: t}
	err := t.do(func() (err error) {
		self, err := cgroup.Self()
		if err != nil {
			return err
		}
		m, ok := cgroup.Find(self, "")
		if !ok {
			return errors.New("no cgroup2")
		}
		if p.dir, err = cgroup.Own(m); err != nil {
			return err
		}
		if err := evacuate(p.dir); err != nil {
			return err
		}
		if p.controllers = p.dir.Enable(); len(p.controllers) == 0 {
			return fmt.Errorf("no controller of cgroup %q can be delegated", m.Path)
		}
		return try(p.dir)
	})
	if err != nil {
		if p.dir != nil {
			p.dir.Close()
		}
		t.end()
		return nil, err
	}
	return p, nil
}

// evacuate moves all processes of dir to its leaf. A process that forks meanwhile needs another round.
func evacuate(dir *cgroup.Dir) error {
	to, err := dir.Make(cgroup.Leaf)
	if err != nil {
		return err
	}
	defer to.Close()
	for range 5 {
		pids, err := dir.Procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := to.Join(pid); err != nil && pid == os.Getpid() {
				return fmt.Errorf("move the runner: %w", err)
			}
		}
	}
	return nil // Enable fails if processes remain
}

// try makes a group below dir and removes it.
func try(dir *cgroup.Dir) error {
	d, err := dir.Make(trial)
	if err != nil {
		return err
	}
	d.Close()
	return dir.Remove(trial)
}

// family returns the process and its two ancestors: the reaper and the program the user typed.
func family(pid int) []int {
	out := []int{pid}
	for range 2 {
		pid = parentOf(pid)
		if pid <= 0 {
			break
		}
		out = append(out, pid)
	}
	return out
}

func strangers(pids, family []int) (n int) {
	for _, p := range pids {
		if !slices.Contains(family, p) {
			n++
		}
	}
	return n
}

// parentOf reads the fourth field of /proc/PID/stat. The second field, a name in parentheses, may contain any
// character.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}
