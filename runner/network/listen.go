package network

import (
	"net/netip"
	"slices"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// listenMost bounds the listeners of one sandbox, each of which takes a descriptor of the reply.
const listenMost = 64

// admitListen rejects listeners that a sandbox cannot have. A persistent one may be started again by a caller that
// does not serve them. It is pure.
func admitListen(spec *runner.Spec) error {
	e := spec.Egress
	if len(e.Listen) > 0 && spec.Lifetime == runner.Persistent {
		return ipc.Errorf(ipc.CodeInvalid, "listen in sandbox: a persistent sandbox has no listeners of its caller")
	}
	if n := max(len(e.Listen), len(e.HostPorts)); n > listenMost {
		return ipc.Errorf(ipc.CodeInvalid, "listen in sandbox: %d ports; at most %d are possible", n, listenMost)
	}
	if len(e.HostPorts) > 0 && e.Group != "" { // whose members would reach them too
		return ipc.Errorf(ipc.CodeInvalid, "reach port %d of this machine: not from a sandbox in a group, such as one with a Docker socket", e.HostPorts[0])
	}
	all := slices.Concat(e.Listen, e.HostPorts)
	for i, port := range all {
		taken := port == 0 || e.GoProxy && port == goProxy.Port() || slices.Contains(all[:i], port) ||
			slices.ContainsFunc(e.Routes, func(r runner.Route) bool { return r.Port == port })
		if taken {
			return ipc.Errorf(ipc.CodeInvalid, "listen on port %d of sandbox: not a port, or in use there", port)
		}
	}
	return nil
}

// listen makes the listeners of the caller and of HostPorts, before any process of the sandbox exists. Only the loopback interface of the
// sandbox's own network namespace leads to them.
func (w *Egress) listen() error {
	for _, port := range w.asked.Listen {
		l, err := w.gateway.Sandbox.Listen(netip.AddrPortFrom(goProxy.Addr(), port))
		if err != nil {
			return err
		}
		w.addListener(api.FileListen(port), l)
	}
	for _, port := range w.asked.HostPorts {
		l, err := w.gateway.Sandbox.Listen(loopback(port))
		if err != nil {
			return err
		}
		w.hosts = append(w.hosts, l)
	}
	return nil
}

// Listeners returns the caller's listeners, once. The receiver closes them.
func (n *Network) Listeners() ipc.Files {
	w := n.Egress()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.listeners
	w.listeners = nil
	return all
}
