package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"demesne/client"
	"demesne/runner"
)

func (s *Server) processRoutes() {
	within(s, operation("list-processes", http.MethodGet, "/sandboxes/{id}/processes", "Sandboxes", "List the processes of a sandbox"), s.processes)
}

func (s *Server) processes(_ context.Context, info *runner.Info, _ *Named) (client.Page[client.Process], error) {
	var all []client.Process
	if info.State == runner.Running || info.State == runner.Paused {
		all = processesOf(info.PID)
	}
	return page(all), nil
}

// Bounds of a list of processes, which are a sandbox's.
const (
	maxProcesses = 1000
	maxCommand   = 1 << 10 // bytes of a command line
	maxStat      = 64 << 10
	clockTicks   = 100 // of the times in /proc, the same on every Linux (USER_HZ)
)

// processesOf returns the processes below a sandbox's PID 1. The kernel may give the id of a process that ends to another
// one. A directory of /proc stays its process's: if its parent is the expected one after it was opened, it is in the
// sandbox.
func processesOf(init int) []client.Process {
	all := []client.Process{}
	if init <= 0 {
		return all
	}
	inside := map[int]int{init: 1} // pids in the sandbox, by the host's pids
	for queue := []int{init}; len(queue) > 0 && len(all) < maxProcesses; queue = queue[1:] {
		for _, pid := range childrenOf(queue[0]) {
			p, ok := processOf(pid, queue[0])
			if !ok || inside[pid] != 0 || len(all) == maxProcesses {
				continue
			}
			inside[pid], p.Parent = p.PID, inside[queue[0]]
			all, queue = append(all, p), append(queue, pid)
		}
	}
	return all
}

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) (all []int) {
	at := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(at)
	if err != nil {
		return nil
	}
	defer dir.Close()
	threads, _ := dir.Readdirnames(maxProcesses)
	for _, t := range threads {
		text, _ := os.ReadFile(at + "/" + t + "/children")
		for word := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// processOf describes a process, if it is a child of parent.
func processOf(pid, parent int) (p client.Process, ok bool) {
	dir, err := os.OpenRoot("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return p, false
	}
	defer dir.Close()
	stat := readProc(dir, "stat", maxStat)
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 22 || f[1] != strconv.Itoa(parent) {
		return p, false
	}
	p.State = f[0]
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	p.CPU, p.Memory = float64(user+system)/clockTicks, pages*int64(os.Getpagesize())
	for line := range strings.Lines(string(readProc(dir, "status", maxStat))) {
		if rest, found := strings.CutPrefix(line, "NSpid:"); found {
			if words := strings.Fields(rest); len(words) > 0 {
				p.PID, _ = strconv.Atoi(words[len(words)-1])
			}
		}
	}
	command := bytes.TrimRight(readProc(dir, "cmdline", maxCommand), "\x00")
	p.Command = strings.ToValidUTF8(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})), "\uFFFD")
	return p, true
}

// readProc reads at most most bytes of a file of a process.
func readProc(dir *os.Root, name string, most int64) []byte {
	f, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return b
}
