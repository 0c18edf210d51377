package pause

import (
	"bytes"
	"os"
)

// Held says whether what was stopped has held still since: a process can have itself continued, by a
// timer that it set before (timer_create(2) with SIGCONT). Each thread is asked how often it ran (schedstat, of
// kernels with CONFIG_SCHED_INFO); on others, only whether it runs now.
func (f *Paused) Held() bool {
	for _, pid := range below(f.pid1) {
		for _, task := range tasks(pid) {
			runs, known := f.runs[task]
			if now := timesRun(task); !inert(task) || !known || now != runs && now != "" {
				return false
			}
		}
	}
	return true
}

// remember notes how often everything has run that is stopped now.
func (f *Paused) remember(pid1 int) {
	f.pid1, f.runs = pid1, map[string]string{}
	for _, pid := range below(pid1) {
		for _, task := range tasks(pid) {
			f.runs[task] = timesRun(task)
		}
	}
}

// timesRun is the third field of schedstat, which counts when a thread gets a processor, not when it gives it up: one that is
// stopped may be just about to.
func timesRun(task string) string {
	text, _ := os.ReadFile(task + "/schedstat")
	f := bytes.Fields(text)
	if len(f) < 3 {
		return ""
	}
	return string(f[2])
}
