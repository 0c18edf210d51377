package client

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"demesne/internal/arrivals"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// listeners holds the listeners of Egress.Listen that the caller has not taken.
type listeners struct {
	mu    sync.Mutex
	files map[uint16]*os.File
}

func listens(e *runner.Egress) []uint16 {
	if e == nil {
		return nil
	}
	return e.Listen
}

// take takes the listeners of ports out of a reply.
func (l *listeners) take(m *ipc.Message, ports []uint16) {
	for _, port := range ports {
		f := m.File(api.FileListen(port))
		if f == nil {
			continue
		}
		if l.files == nil {
			l.files = map[uint16]*os.File{}
		}
		l.files[port] = f
	}
}

// Listener returns the listener of a port in Egress.Listen: the caller then serves 127.0.0.1:port of the sandbox. It
// returns each listener once, and only for a sandbox that s created. The caller closes it.
//
// The runner made the socket before the sandbox had a process, so no process can have taken the port, and connections
// made before the caller accepts wait in the queue. What connects to it is a process of this sandbox: no other sandbox,
// and no process of the host, is in its network namespace. At the minimal level the runner passes each connection of the
// sandbox to the caller, and no other process can connect. The caller alone has the socket, so the port is refused after
// the caller has ended.
func (s *Sandbox) Listener(port uint16) (net.Listener, error) {
	s.listeners.mu.Lock()
	f := s.listeners.files[port]
	delete(s.listeners.files, port)
	s.listeners.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("listen on port %d of sandbox: not requested, or taken already", port)
	}
	defer f.Close()
	l, err := arrivals.Listener(f, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of sandbox: %w", port, err)
	}
	return l, nil
}
