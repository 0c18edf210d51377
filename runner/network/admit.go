package network

import (
	"fmt"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// Admit removes the private fields from spec.Egress and returns the whole Egress, or nil for a sandbox without
// egress. The proxy interprets the rules while the sandbox is made, see [AdmitPlan]. If nothing is allowed, check
// validates the rest: even an Egress that allows nothing must be well formed.
func Admit(spec *runner.Spec, check func(runner.Egress) error) (*runner.Egress, error) {
	asked := spec.Egress
	if asked == nil {
		return nil, nil
	}
	if err := admitRoutes(asked); err != nil {
		return nil, err
	}
	if err := admitListen(spec); err != nil {
		return nil, err
	}
	spec.Egress = Public(asked)
	if allows(asked) {
		return asked, nil
	}
	spec.Egress = nil
	if len(asked.Deny)+len(asked.Secrets)+len(asked.Upstream) == 0 {
		return nil, nil
	}
	if err := check(*asked); err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "create sandbox: %w", err)
	}
	if len(asked.Secrets) > 0 {
		return nil, &ipc.Error{
			Code: ipc.CodeInvalid,
			Text: fmt.Sprintf("create sandbox: secret %q is for a host, and the sandbox has no network", asked.Secrets[0].Name),
			Hint: "--allow-domain " + asked.Secrets[0].Host + " allows it",
		}
	}
	return nil, nil
}

// modeNone is the mode that allows nothing. The runner knows it independently of the proxy.
const modeNone = "none"

func allows(e *runner.Egress) bool {
	return e.Mode != "" && e.Mode != modeNone || len(e.Allow) > 0 || e.Learn || e.GoProxy || e.Gateway || e.Ask > 0 || e.Group != "" || len(e.Routes) > 0 || len(e.Listen) > 0
}

// Public returns the part of an Egress that other callers may see.
func Public(e *runner.Egress) *runner.Egress {
	p := *e
	p.Upstream, p.Trust, p.Secrets, p.Routes = nil, runner.Trust{}, nil, publicRoutes(e.Routes)
	return &p
}

// AdmitPlan rejects a sandbox with open egress that has data of the host.
func AdmitPlan(spec *runner.Spec, plan proxyclient.Plan) error {
	why := Leaks(spec, spec.Egress, plan.Open)
	if why == "" {
		return nil
	}
	return &ipc.Error{
		Code: ipc.CodeInvalid, Text: why,
		Hint: "allow only the hosts it needs, or pass no inputs",
	}
}

// Leaks says why a sandbox with open egress must not have what spec gives it. It returns "" if it may.
func Leaks(spec *runner.Spec, asked *runner.Egress, open bool) string {
	how, what := openWord(asked, open), holds(spec)
	if how == "" || what == "" {
		return ""
	}
	return fmt.Sprintf("%s and %s: the command could send your files to any server", how, what)
}
