package sandbox

import (
	"bytes"
	"os"
)

// Held reports whether the stopped processes surely have not run since. A process can arrange to be continued by a
// timer set earlier (timer_create(2) with SIGCONT). Held compares how often each thread ran (schedstat, on
// kernels with CONFIG_SCHED_INFO). Without schedstat, it only checks that no thread runs now.
func (f *stoppedProcesses) Held() bool {
	pids, err := descendants(f.pid1)
	if err != nil {
		return false
	}
	for _, pid := range pids {
		threads, err := tasks(pid)
		if err != nil {
			return false
		}
		for _, task := range threads {
			runs, known := f.runs[task]
			if now := timesRun(task); !inert(task) || !known || now != runs && now != "" {
				return false
			}
		}
	}
	return true
}

// remember records how often each thread below pid1 has run.
func (f *stoppedProcesses) remember(pid1 int) {
	f.pid1, f.runs = pid1, map[string]string{}
	for _, pid := range below(pid1) {
		threads, _ := tasks(pid)
		for _, task := range threads {
			f.runs[task] = timesRun(task)
		}
	}
}

// timesRun returns the third field of schedstat. It counts when a thread gets a processor, not when it gives it
// up: a stopped thread may still be about to give it up.
func timesRun(task string) string {
	text, _ := os.ReadFile(task + "/schedstat")
	f := bytes.Fields(text)
	if len(f) < 3 {
		return ""
	}
	return string(f[2])
}
