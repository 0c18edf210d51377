package netns

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Step is a part of [ProbeEgress]; a kernel can lack each of them alone.
type Step string

// The steps, in order.
const (
	StepNamespace Step = "namespaces"
	StepVeth      Step = "veth pair"
	StepAddress   Step = "addresses"
	StepAnyIP     Step = "anyip route"
	StepListen    Step = "transparent listener"
	StepTProxy    Step = "tproxy rule"
	StepConnect   Step = "connection"
)

// StepError tells at which step ProbeEgress ended.
type StepError struct {
	Step Step
	Err  error
}

func (e *StepError) Error() string { return string(e.Step) + ": " + e.Err.Error() }

// Unwrap gives the kernel's answer.
func (e *StepError) Unwrap() error { return e.Err }

// probeTime bounds ProbeEgress as a whole. It takes a few milliseconds.
const probeTime = time.Second

// The addresses of the probe: 198.18.0.0/15 is set apart for tests of networks
// (RFC 2544), so it names nobody.
var (
	probeRange   = network("198.18.0.0/15")
	probeGateway = network("198.18.0.1/30")
	probeSandbox = network("198.18.0.2/30")
	probeTarget  = netip.MustParseAddrPort("198.18.1.7:4321")
)

const (
	probeLink = "demesne0" // both ends, each in its own namespace
	probePort = 1          // of the listener; nothing else is in its namespace
)

// ProbeEgress makes a gateway and a sandbox namespace and lets a connection from the
// sandbox to an address that nobody has arrive at a listener in the gateway, which
// learns the address. Its error is a [*StepError]. It leaves nothing, except that
// where the kernel does not answer in time a thread ends later than the call.
func ProbeEgress() error {
	done := make(chan error, 1)
	deadline := time.Now().Add(probeTime)
	go func() { done <- Spend(func() error { return probeEgress(deadline) }) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(probeTime):
		err = &StepError{StepConnect, unix.ETIMEDOUT}
	}
	if err != nil {
		return fmt.Errorf("probe egress: %w", err)
	}
	return nil
}

// side is a namespace and the socket that sets it up.
type side struct {
	ns *NS
	nl *netlink.Handle
}

// egress is what the steps of a probe hand on. All of it is made by one thread,
// which goes from the gateway to the sandbox: a socket stays where it was made.
type egress struct {
	gateway, sandbox side
	listener         int
	deadline         time.Time
}

func probeEgress(deadline time.Time) error {
	e := &egress{listener: -1, deadline: deadline}
	defer e.close()
	for _, s := range []struct {
		name Step
		do   func() error
	}{
		{StepNamespace, e.enterGateway},
		{StepAnyIP, e.routeAnyIP},
		{StepListen, e.listen},
		{StepTProxy, e.addRule},
		{StepNamespace, e.enterSandbox},
		{StepVeth, e.addPair},
		{StepAddress, e.addAddresses},
		{StepConnect, e.connect},
	} {
		if err := s.do(); err != nil {
			return &StepError{s.name, err}
		}
	}
	return nil
}

func (e *egress) close() {
	if e.listener >= 0 {
		unix.Close(e.listener)
	}
	e.gateway.close()
	e.sandbox.close()
}

func (s side) close() {
	if s.nl != nil {
		s.nl.Close()
	}
	if s.ns != nil {
		s.ns.Close()
	}
}

func (e *egress) enterGateway() error { return e.gateway.enter() }
func (e *egress) enterSandbox() error { return e.sandbox.enter() }

func (s *side) enter() (err error) {
	if s.ns, err = enter(); err != nil {
		return err
	}
	if s.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open rtnetlink: %w", err)
	}
	return s.nl.SetSocketTimeout(probeTime)
}

// routeAnyIP makes every address of the range one of the gateway's own.
func (e *egress) routeAnyIP() error {
	lo, err := e.gateway.nl.LinkByName("lo")
	if err != nil {
		return err
	}
	return e.gateway.nl.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: probeRange, Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	})
}

func network(s string) *net.IPNet {
	ip, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err) // a constant of this file
	}
	return &net.IPNet{IP: ip.To4(), Mask: n.Mask}
}
