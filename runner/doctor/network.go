package doctor

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/network"
	"demesne/runner/seccomp"
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
	if e.Minimal {
		return []answer{e.supervised(cmp.Or(network.CanSupervise(), seccomp.Supervisable()))}
	}
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

// supervised is the answer of a machine without network namespaces, where the runner makes the connections of sandboxes
// unless err says why it cannot.
func (e *Env) supervised(err error) answer {
	if err != nil {
		return answer{runner.Missing, "sandboxes have no network", err.Error(), e.ModeFix}
	}
	return answer{runner.Degraded, "by name, over TCP: the runner makes each connection; no servers", "needs a user namespace", e.ModeFix}
}
