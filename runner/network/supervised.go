package network

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
	"demesne/runner/network/supervisor"
)

// supervised is the egress of a sandbox that shares the host's network namespace. The runner makes its connections, to
// the addresses that a gateway would have, and passes them to the proxy, or to the caller that listens there.
type supervised struct {
	calls        *supervisor.Supervisor
	theirs, ours *os.File            // the ends of a socket, of which the proxy gets the first
	callers      map[string]*os.File // the runner's ends of those that the caller gets, by api.FileListen
}

// NewSupervised starts the egress of a sandbox without a network namespace. listener answers the system calls of the
// sandbox; NewSupervised owns it.
func NewSupervised(w *Egress, listener *os.File) (*Network, error) {
	if err := CanSupervise(); err != nil {
		listener.Close()
		return nil, &ipc.Error{Code: ipc.CodeRequirement, Text: "make network without namespaces: " + err.Error(), Hint: "use --egress none, or give the container namespaces: see demesne check"}
	}
	theirs, ours, err := ipc.Pair()
	if err != nil {
		listener.Close()
		return nil, err
	}
	s := &supervised{theirs: theirs, ours: ours, callers: map[string]*os.File{}}
	if err = s.listen(w); err == nil {
		s.calls, err = supervisor.New(listener, serviceOf(w.asked), s.receiver)
	} else {
		listener.Close()
	}
	if err != nil {
		s.close()
		return nil, ipc.Errorf(ipc.CodeRequirement, "make network without namespaces: %w", err)
	}
	w.arrivals = s
	return &Network{egress: w}, nil
}

// listen makes the sockets by which the caller gets the connections to its ports.
func (s *supervised) listen(w *Egress) error {
	for _, port := range w.asked.Listen {
		theirs, ours, err := ipc.Pair()
		if err != nil {
			return err
		}
		name := api.FileListen(port)
		s.callers[name] = ours
		w.addListener(name, theirs)
	}
	return nil
}

// receiver returns the socket of the process that gets the connections of a service.
func (s *supervised) receiver(service string) int {
	if f := s.callers[service]; f != nil {
		return int(f.Fd())
	}
	return int(s.ours.Fd())
}

func (s *supervised) close() {
	if s.calls != nil {
		s.calls.Close()
	}
	s.theirs.Close()
	s.ours.Close()
	for _, f := range s.callers {
		f.Close()
	}
}

// sockets returns the socket to serve.
func (s *supervised) sockets() proxyclient.Sockets {
	return proxyclient.Sockets{Files: ipc.Files{proxyclient.FileArrivals: s.theirs}}
}

// dnsPort is where resolvers ask. One that cannot read a configuration asks the loopback.
const dnsPort = 53

// serviceOf returns the function that names the service at an address of the sandbox, or the error that the
// network of another sandbox has there. It is pure.
func serviceOf(e runner.Egress) supervisor.Where {
	v4, v6 := netns.Pools()
	return func(to netip.AddrPort, datagrams bool) (string, unix.Errno) {
		local := to.Addr().IsLoopback()
		switch port := to.Port(); {
		case datagrams && (to == netns.DNSAddr() || local && port == dnsPort):
			return proxyclient.FileDNS, 0
		case datagrams:
			return "", unix.ENETUNREACH
		case to == netns.ProxyAddr():
			return proxyclient.FileProxy, 0
		case to == netns.DNSAddr(), local && port == dnsPort:
			return proxyclient.FileDNSTCP, 0
		case v4.Contains(to.Addr()) || v6.Contains(to.Addr()):
			return proxyclient.FileNamed + to.String(), 0
		case local && e.GoProxy && port == goProxy.Port():
			return proxyclient.FileGo, 0
		case local && slices.ContainsFunc(e.Routes, func(r runner.Route) bool { return r.Port == port }):
			return proxyclient.FileRoute(port), 0
		case local && slices.Contains(e.Listen, port):
			return api.FileListen(port), 0
		case to.Addr() == goProxy.Addr() && slices.Contains(e.HostPorts, port):
			return proxyclient.FileNamed + to.String(), 0
		case local || to.Addr() == netns.ProxyAddr().Addr():
			return "", unix.ECONNREFUSED
		}
		return "", unix.ENETUNREACH
	}
}

// CanSupervise says why the runner cannot read the arguments of a sandbox's system calls, or returns nil.
func CanSupervise() error {
	var from, to [1]byte
	local, remote := []unix.Iovec{{Base: &to[0]}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}
	local[0].SetLen(1)
	_, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0)
	runtime.KeepAlive(&from)
	if err != nil {
		return fmt.Errorf("read memory of a process: %w", err)
	}
	// Yama lets a process look into its descendants, unless an administrator forbids it.
	text, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if scope := strings.TrimSpace(string(text)); scope > "1" && (scope > "2" || !mayTrace()) {
		return fmt.Errorf("read memory of a process: kernel.yama.ptrace_scope is %s", scope)
	}
	return nil
}

// mayTrace reports whether this process has CAP_SYS_PTRACE.
func mayTrace() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

func supervisedLayers() []runner.Layer {
	servers := "servers listen at a loopback address of the sandbox, for its own processes"
	if err := supervisor.CanListen(); err != nil {
		servers = "no listening: " + err.Error()
	}
	return []runner.Layer{
		{Name: "connections", Status: runner.Held, Detail: "made by the runner for each connect(2), by seccomp user notification, and only to demesne-proxy; no datagrams but queries for names; " + servers},
		{Name: "egress-by-name", Status: runner.Held, Detail: "any TCP port of an allowed name, over IPv4 and IPv6"},
	}
}
