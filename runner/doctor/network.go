package doctor

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// probeNetwork creates the network namespace of a sandbox, which verifies itself.
func probeNetwork(_ context.Context, e *Env) []answer {
	n, err := netns.New()
	if err != nil {
		return []answer{e.judge(runner.Missing, "", diagnose.Netns, err), {}}
	}
	defer n.Close()
	sys := held("")
	if n.SysfsErr != nil {
		sys = e.judge(runner.Degraded, "/sys is empty", diagnose.Proc, n.SysfsErr)
	}
	return []answer{held("only a loopback"), sys}
}

func probeEgress(_ context.Context, e *Env) []answer {
	err := netns.ProbeEgress()
	if err == nil {
		return []answer{held("veth, AnyIP, tproxy")}
	}
	var at *netns.StepError
	if !errors.As(err, &at) {
		return []answer{{status: runner.Missing, why: err.Error()}}
	}
	why, fix := diagnose.Egress(string(at.Step), at.Err, *e.Facts)
	switch {
	case errors.Is(at.Err, unix.ETIMEDOUT):
		return []answer{untested(at)}
	case at.Step == netns.StepTProxy:
		return []answer{{runner.Degraded, "the named ports of allowed names; other ports only through the proxy", why, fix}}
	}
	return []answer{{runner.Missing, "only loopback networks are possible", why, fix}}
}
