package engine

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"demesne/proxy"
	"demesne/proxy/modes"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/wire"
)

// egress is what a Spec says about the network, understood. What must be in no file and
// no receipt is here and not in the Spec any more.
type egress struct {
	open     bool // to everybody: by its mode, to learn, or by rules for all addresses
	policy   policy.Policy
	upstream *proxy.Upstream
	secrets  []proxy.Secret
}

// admitEgress understands spec.Egress, refuses what no egress is, and takes out of spec
// what is nobody else's business. It gives nil for a sandbox without a way out.
func admitEgress(spec *runner.Spec) (*egress, error) {
	asked := spec.Egress
	if asked == nil {
		return nil, nil
	}
	spec.Egress = public(asked)
	e, err := understand(asked)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInvalid, "create sandbox: %w", err)
	}
	if len(e.policy.Allowed()) == 0 && asked.Ask == 0 {
		spec.Egress = nil
		return nil, nil
	}
	if why := leaks(spec, asked, e.open); why != "" {
		return nil, &wire.Error{
			Code: wire.CodeInvalid,
			Text: "create sandbox: " + why,
			Hint: "allow the names it needs instead, or leave the inputs out",
		}
	}
	return e, nil
}

// public is what others may see of an Egress.
func public(e *runner.Egress) *runner.Egress {
	p := *e
	p.Upstream, p.Secrets = nil, nil
	return &p
}

func understand(asked *runner.Egress) (*egress, error) {
	mode := modes.Mode{}
	var err error
	if asked.Mode != "" {
		if mode, err = modes.Parse(asked.Mode); err != nil {
			return nil, err
		}
	}
	allow, err := parseRules(asked.Allow)
	if err != nil {
		return nil, err
	}
	deny, err := parseRules(asked.Deny)
	if err != nil {
		return nil, err
	}
	e := &egress{policy: policy.Policy{}.Allow(mode.Rules()...).Allow(allow...).Deny(deny...)}
	if asked.Learn {
		e.policy = e.policy.Allow(policy.Everything())
	}
	e.open = mode.Everything() || asked.Learn || reachesAnybody(e.policy)
	if e.upstream, err = proxy.UpstreamFrom(func(name string) string { return asked.Upstream[name] }); err != nil {
		return nil, err
	}
	for _, s := range asked.Secrets {
		secret, err := proxy.NewSecret(s.Name, s.Value, s.Host, s.Header)
		if err != nil {
			return nil, err
		}
		e.secrets = append(e.secrets, secret)
	}
	return e, nil
}

func parseRules(words []string) ([]policy.Rule, error) {
	var rules []policy.Rule
	for _, w := range words {
		r, err := policy.ParseRule(w)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// anybody are addresses of four strangers, far from each other. A policy that lets a
// sandbox talk to all of them was not written with any in mind.
var anybody = []string{"9.9.9.9", "93.184.216.34", "151.101.1.69", "193.0.6.139"}

// reachesAnybody says that rules for addresses amount to the mode "open".
func reachesAnybody(p policy.Policy) bool {
	return slices.ContainsFunc([]uint16{22, 53, 80, 443}, func(port uint16) bool {
		return !slices.ContainsFunc(anybody, func(a string) bool {
			return !p.Decide(policy.Query{Addr: netip.MustParseAddr(a), Port: port}).Allowed
		})
	})
}

// leaks says why a sandbox that may talk to everybody must not have what spec gives it.
func leaks(spec *runner.Spec, asked *runner.Egress, open bool) string {
	if !open || asked.OpenWithInputs && !asked.Learn {
		return ""
	}
	what := "open egress"
	if asked.Learn {
		what = "egress that learns"
	}
	switch {
	case len(spec.Inputs) > 0:
		return fmt.Sprintf("%s and input %q: data of this machine could go to anybody", what, spec.Inputs[0].Path)
	case spec.Workspace != "":
		return fmt.Sprintf("%s and workspace %q: data of this machine could go to anybody", what, spec.Workspace)
	case spec.Rootfs != nil && spec.Rootfs.Dir != "":
		return fmt.Sprintf("%s and directory %q: data of this machine could go to anybody", what, spec.Rootfs.Dir)
	}
	return ""
}

// config is the proxy's. log may be nil.
func (e *egress) config(id string, v4, v6 netip.Prefix, log *os.File) proxy.Config {
	c := proxy.Config{Sandbox: id, Policy: e.policy, V4: v4, V6: v6, Upstream: e.upstream, Secrets: e.secrets}
	if log != nil {
		c.Log = log
	}
	return c
}

// network is the receipt's word for it.
func (e *egress) network() string {
	switch n := len(e.policy.Allowed()); {
	case e.open:
		return "open"
	case n == 1:
		return "filtered: 1 rule"
	default:
		return fmt.Sprintf("filtered: %d rules", n)
	}
}
