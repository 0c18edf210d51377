package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNamespaces executes a command under a filter that refuses namespaces, as Docker's default profile does.
//
//	bench without-namespaces PROGRAM ARG…
func withoutNamespaces(argv []string) error {
	const flags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: k} }
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op, Jt: yes, Jf: no, K: k}
	}
	load := func(at uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS, K: at} }
	prog := []unix.SockFilter{
		load(0),
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
		jump(unix.BPF_JEQ, unix.SYS_UNSHARE, 4, 0), jump(unix.BPF_JEQ, unix.SYS_MOUNT, 3, 0),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 3), load(16), jump(unix.BPF_JSET, flags, 0, 1),
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)), ret(unix.SECCOMP_RET_ALLOW),
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p))); e != 0 {
		return fmt.Errorf("load filter: %w", e)
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// minimally returns a command of demesne at the level minimal.
func (m *machine) minimally(argv ...string) []string {
	return append([]string{m.bin + "/bench", "without-namespaces", m.bin + "/" + argv[0]}, argv[1:]...)
}

// minimal compares sandboxes of the level minimal with others: a run, a run with a network, one stream, requests and new
// connections. Rounds of both take turns.
func minimal(m *machine) {
	commands := map[string][]string{"run": {"demesne", "run", "--", "true"}, "networked run": {"demesne", "run", "--allow-domain", "good.test", "--", "true"}}
	for _, name := range []string{"run", "networked run"} {
		full, least := "demesne "+name+", full", "demesne "+name+", minimal"
		took := m.cold(m.rounds,
			entry{name: full, note: "cold", run: m.timed(commands[name]...)},
			entry{name: least, note: "cold", run: m.timed(m.minimally(commands[name]...)...)})
		if name == "run" { // a cold one tries namespaces first
			m.limit("minimal run, against a full one", true, fmt.Sprintf("%.2f x", float64(took[least])/float64(took[full])), "(no bound)")
			continue
		}
		m.ratio("minimal "+name+", against a full one", took[least], took[full], 1.3)
	}
	m.minimalLoads()
}

func (m *machine) minimalLoads() {
	for _, c := range []struct {
		kind, via  string
		to         string
		n, workers int
	}{{"stream", "connect", streamServer, 1 << 29, 1}, {"stream", "name", streamServer, 1 << 29, 1}, {"request", "connect", echoServer, 2000, 1}, {"tunnel", "connect", tunnelServer, 500, 8}} {
		rates := map[string][]float64{}
		for range 3 {
			for _, level := range []string{"", "minimal "} {
				r := must(m.load(c.kind, level+c.via, c.to, c.n, c.workers))
				n := float64(len(r.Each))
				if c.kind == "stream" {
					n = float64(c.n) / 1e6
				}
				rates[level] = append(rates[level], n/r.Elapsed.Seconds())
			}
		}
		full, least, unit := median(rates[""]), median(rates["minimal "]), "/s"
		if c.kind == "stream" {
			unit = " MB/s"
		}
		m.limit(fmt.Sprintf("minimal: %s by %s", c.kind, c.via), true, fmt.Sprintf("%.2f x of full (%.0f and %.0f%s)", least/full, least, full, unit), "(no bound)")
	}
}

// minimalLoad returns the command of a load client in a sandbox of the level minimal.
func (m *machine) minimalLoad(argv []string) []string {
	argv[3] = strings.TrimPrefix(argv[3], "minimal ")
	return append(m.minimally("demesne", "run", "--in", m.bin+"/bench", "--allow-domain", loadPorts, "--", "sh", "-c", `exec "$DEMESNE_IN/bench" "$@"`, "sh"), argv[1:]...)
}
