package netns

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
)

// Step is a part of [ProbeEgress]; a kernel can lack each of them independently.
type Step string

// The steps of ProbeEgress and NewGateway.
const (
	StepNamespace Step = "namespaces"
	StepVeth      Step = "veth pair"
	StepAddress   Step = "addresses"
	StepAnyIP     Step = "anyip route"
	StepListen    Step = "transparent listener"
	StepTProxy    Step = "tproxy rule"
	StepConnect   Step = "connection"
)

// StepError reports the step at which ProbeEgress or NewGateway failed.
type StepError struct {
	Step Step
	Err  error
}

func (e *StepError) Error() string { return string(e.Step) + ": " + e.Err.Error() }

// Unwrap returns the kernel's error.
func (e *StepError) Unwrap() error { return e.Err }

// ProbeEgress makes a gateway as NewGateway does, and connects from the sandbox to an address that no host has. A
// listener in the gateway must accept the connection and learn that address. The error wraps a [*StepError].
// ProbeEgress leaves nothing behind, except that a thread outlives the call if the kernel does not answer in time.
func ProbeEgress() error {
	done := make(chan error, 1)
	go func() { done <- procself.OnDisposableThread(probeEgress) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(2 * wiringTime):
		err = &StepError{StepConnect, unix.ETIMEDOUT}
	}
	if err != nil {
		return fmt.Errorf("probe egress: %w", err)
	}
	return nil
}

// probe is a gateway and a connection through it.
type probe struct {
	wiring
	client, listener int
}

func probeEgress() error {
	p := &probe{client: -1, listener: -1}
	defer p.close()
	steps := p.steps()
	return run(append([]step{steps[0], {StepNamespace, p.openClient}}, append(steps[1:],
		step{StepListen, p.listen},
		step{StepTProxy, func() error { return addTProxy(false) }},
		step{StepConnect, p.connect})...))
}

func (p *probe) close() {
	for _, fd := range []int{p.client, p.listener} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	p.wiring.close()
}

// openClient makes the client's socket while the thread is in the sandbox.
func (p *probe) openClient() (err error) {
	p.client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	return err
}

func (p *probe) listen() (err error) {
	if p.listener, err = socket(anyAddr(false, namedPort), unix.SOCK_STREAM); err != nil {
		return err
	}
	return unix.Listen(p.listener, 1)
}

// connect dials from the sandbox and accepts in the gateway.
func (p *probe) connect() error {
	target := netip.AddrPortFrom(pool4.Addr(), 4321)
	if err := unix.Connect(p.client, sockaddr(target)); err != nil && err != unix.EINPROGRESS {
		return err
	}
	if err := waitFor(p.listener, unix.POLLIN, time.Now().Add(wiringTime)); err != nil {
		return err
	}
	conn, _, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(conn)
	local, err := unix.Getsockname(conn)
	if err != nil {
		return err
	}
	got, ok := local.(*unix.SockaddrInet4)
	if !ok || got.Addr != target.Addr().As4() || got.Port != int(target.Port()) {
		return fmt.Errorf("connection arrived with destination %v, not %v", local, target)
	}
	return nil
}

// waitFor polls fd for events until the deadline.
func waitFor(fd int, events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}
