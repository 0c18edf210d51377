package network

import (
	"fmt"
	"os"
	"slices"

	"demesne/netns"
	"demesne/runner"
)

// mostPorts bounds the ports that are served by name on a kernel without tproxy. Each port has an IPv4 and an IPv6
// socket, and a new proxy receives all of them in one message.
const mostPorts = 56

// listenOn opens sockets for the ports that have none yet, up to mostPorts in total.
func (w *Egress) listenOn(ports []uint16) (opened []*os.File, err error) {
	for _, port := range missing(w.ports, ports) {
		files, err := w.gateway.Listen(port)
		if err != nil {
			return opened, err
		}
		opened = append(opened, files...)
		w.ports, w.ported = append(w.ports, port), append(w.ported, files...)
	}
	return opened, nil
}

// missing returns the wanted ports that are not yet open, up to mostPorts in total. It is pure.
func missing(there, wanted []uint16) (all []uint16) {
	for _, port := range wanted {
		if !slices.Contains(there, port) && len(there)+len(all) < mostPorts {
			all = append(all, port)
		}
	}
	return all
}

// Layers returns the receipt's layers for egress. Their claims were tested by netns.Gateway.Verify, or by PID 1 of a
// supervised sandbox.
func (w *Egress) Layers() []runner.Layer {
	if w.arrivals != nil {
		return supervisedLayers()
	}
	v4, v6 := netns.Pools()
	gateway := runner.Layer{Name: "gateway", Status: runner.Held}
	gateway.Detail = fmt.Sprintf("a namespace without external routes; it routes only %v and %v", v4, v6)
	if err := w.gateway.IPv6Err; err != nil {
		gateway.Detail = fmt.Sprintf("a namespace without external routes; it routes only %v, and no IPv6: %v", v4, err)
	}
	names := runner.Layer{Name: "egress-by-name", Status: runner.Held, Detail: "tproxy: any TCP port of an allowed name, over IPv4 and IPv6"}
	if w.gateway.IPv6Err != nil {
		names.Detail = "tproxy: any TCP port of an allowed name, over IPv4"
	}
	if err := w.gateway.NamedErr; err != nil {
		names.Status, names.Why = runner.Degraded, err.Error()
		names.Detail = fmt.Sprintf("TCP ports %v of an allowed name; other ports only through the proxy", w.ports)
		names.Fix = "sudo modprobe -a nf_tables nft_tproxy"
	}
	return []runner.Layer{gateway, names}
}
