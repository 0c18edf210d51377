package sandbox

import (
	"bytes"
	"os"
	"strconv"

	"demesne/runner"
	"demesne/runner/ipc"
)

// Pause stops the processes of s, commands included, until the next command starts: see [idle]. Unlike the pause of an
// unused sandbox it does not wait for commands.
func Pause(s *Sandbox) error {
	<-s.built
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return s.endedErr("pause sandbox")
	case s.machine.minimal():
		return ipc.Errorf(ipc.CodeInvalid, "pause sandbox %q: the machine forbids namespaces, so its processes cannot be told apart", s.id)
	case s.idle.paused != nil:
		return nil
	}
	p, err := stopProcesses(s.init.pid)
	if err != nil {
		return ipc.Errorf(ipc.CodeInternal, "pause sandbox %q: %w", s.id, err)
	}
	s.idle.paused = p
	return nil
}

// Measure returns what s uses. PID 1 reaps every process that its parent does not, so its own times and the live processes'
// times are the whole. The memory is the control group's, or else the resident sets of the processes.
func Measure(s *Sandbox) runner.Usage {
	s.mu.Lock()
	pid := s.init.pid
	s.mu.Unlock()
	if pid == 0 || s.Done() {
		return runner.Usage{}
	}
	ticks, pages := consumed(pid)
	live := below(pid)
	for _, p := range live {
		t, m := consumed(p)
		ticks, pages = ticks+t, pages+m
	}
	u := runner.Usage{CPU: float64(ticks) / clockTicks, Memory: pages * int64(os.Getpagesize()), Processes: len(live)}
	if current, cache, ok := s.group.Memory(); ok {
		u.Memory, u.Cache = current, cache
	}
	return u
}

// clockTicks is the unit of the times in /proc, which is the same on every Linux (USER_HZ).
const clockTicks = 100

// consumed returns the processor time of a process and of the children that it waited for, in ticks, and its resident pages.
func consumed(pid int) (ticks, pages int64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return 0, 0
	}
	for _, word := range f[11:15] {
		n, _ := strconv.ParseInt(string(word), 10, 64)
		ticks += n
	}
	pages, _ = strconv.ParseInt(string(f[21]), 10, 64)
	return ticks, pages
}
