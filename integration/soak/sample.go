package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sampleNames are the columns of the file. Sizes are MiB, latencies milliseconds.
var sampleNames = []string{"seconds", "server MiB", "runners MiB", "proxies MiB", "descriptors", "processes", "disk MiB", "run ms", "exec ms", "fork ms", "operations", "failed"}

// sample is one reading.
type sample struct {
	at                             time.Duration
	server, runners, proxies, disk float64
	descriptors, processes         int
	run, exec, fork                time.Duration
	operations, failed             int
}

func (s sample) fields() []string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
	ms := func(d time.Duration) string { return number(d.Seconds() * 1000) }
	return []string{strconv.Itoa(int(s.at.Seconds())), number(s.server), number(s.runners), number(s.proxies), strconv.Itoa(s.descriptors), strconv.Itoa(s.processes),
		number(s.disk), ms(s.run), ms(s.exec), ms(s.fork), strconv.Itoa(s.operations), strconv.Itoa(s.failed)}
}

// sample reads the processes that run the programs of this soak, and what these started. The commands of a round have ended.
func (w *worker) sample(at time.Duration) (s sample, err error) {
	s = sample{at: at, operations: w.operations, failed: w.failed}
	s.run, s.exec, s.fork = w.latency("run"), w.latency("exec"), w.latency("fork")
	w.times = map[string][]time.Duration{}
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return s, err
	}
	for _, dir := range found {
		exe, err := os.Readlink(dir + "/exe")
		if err != nil || filepath.Dir(exe) != w.bin && !(strings.HasPrefix(exe, "/dev/.demesne-init") && w.started(dir)) {
			continue
		}
		s.processes++
		memory := pss(dir)
		switch filepath.Base(exe) {
		case "demesne-frontend":
			s.server += memory
		case "demesne-runner":
			s.runners += memory
		case "demesne-proxy":
			s.proxies += memory
		default:
			continue
		}
		open, _ := os.ReadDir(dir + "/fd") // the process may have ended
		s.descriptors += len(open)
	}
	s.disk = size(w.home) + size(w.dir+"/sandboxes")
	return s, nil
}

// started reports whether a program of this soak is an ancestor of a process. The machine may have other sandboxes.
func (w *worker) started(dir string) bool {
	for {
		text, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return false
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // state, then the parent
		if fields[1] == "0" {
			return false
		}
		dir = "/proc/" + fields[1]
		if exe, _ := os.Readlink(dir + "/exe"); filepath.Dir(exe) == w.bin {
			return true
		}
	}
}

// pss returns the proportional set size of a process in MiB.
func pss(dir string) float64 {
	text, _ := os.ReadFile(dir + "/smaps_rollup") // none: the process ended
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	if fields := strings.Fields(rest); len(fields) > 0 {
		kib, _ := strconv.ParseFloat(fields[0], 64)
		return kib / 1024
	}
	return 0
}

// size returns the disk space of a tree in MiB. Files may go meanwhile.
func size(dir string) (mib float64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			mib += float64(info.Sys().(*syscall.Stat_t).Blocks) / 2048
		}
		return nil
	})
	return mib
}

func median(rows []sample, value func(sample) float64) float64 {
	var all []float64
	for _, r := range rows {
		all = append(all, value(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// machine describes this machine in a few words.
func machine() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release := strings.SplitN(strings.TrimSpace(string(text)), ".", 3)
	return fmt.Sprintf("%d processors and Linux %s", runtime.NumCPU(), strings.Join(release[:min(2, len(release))], "."))
}
