package daemon

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"demesne/proxy"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// egress is a parsed runner.Egress.
type egress struct {
	open     bool
	group    bool
	policy   policy.Policy
	upstream *proxy.Upstream
	secrets  []proxy.Secret
	routes   []proxy.Route
	aging    *proxy.Aging
}

// compile parses what a sandbox may reach.
func compile(asked runner.Egress) (*egress, error) {
	e := &egress{group: asked.Group != ""}
	var err error
	if e.policy, e.open, err = policyOf(asked); err != nil {
		return nil, err
	}
	if e.upstream, err = proxy.UpstreamFrom(func(name string) string { return asked.Upstream[name] }); err != nil {
		return nil, err
	}
	for _, s := range asked.Secrets {
		secret, err := proxy.NewSecret(s.Name, s.Value, s.Host, s.Header)
		if err == nil && s.Set != "" {
			secret, err = secret.Setting(s.Set)
		}
		if err != nil {
			return nil, err
		}
		e.secrets = append(e.secrets, secret)
	}
	for _, r := range asked.Routes {
		route := proxy.Route{Port: r.Port, To: r.To, Allow: r.Allow, Token: r.Token, Header: r.Header, Usage: r.Usage, Query: r.Query, Closed: r.Closed, Headers: r.Headers, Gated: r.Gated}
		if err := route.Validate(); err != nil {
			return nil, err
		}
		e.routes = append(e.routes, route)
	}
	if asked.PackageAge > 0 {
		e.aging = &proxy.Aging{Least: time.Duration(asked.PackageAge), Except: asked.PackageAgeExcept, Registries: map[string]policy.Registry{}}
		for host, kind := range asked.Registries {
			e.aging.Registries[host] = policy.Registry(kind)
		}
	}
	return e, nil
}

// policyOf parses the rules of an Egress. open reports whether they reach everything: by the mode, by Learn, or by
// rules for all addresses.
func policyOf(asked runner.Egress) (p policy.Policy, open bool, err error) {
	mode := policy.Mode{}
	if asked.Mode != "" {
		if mode, err = policy.ParseMode(asked.Mode); err != nil {
			return p, false, err
		}
	}
	allow, err := parseRules(asked.Allow)
	if err != nil {
		return p, false, err
	}
	deny, err := parseRules(asked.Deny)
	if err != nil {
		return p, false, err
	}
	p = p.Allow(mode.Rules()...).Allow(allow...).Deny(deny...)
	if asked.GoProxy {
		p = p.Allow(policy.GoProxy()...)
	}
	if asked.Learn {
		p = p.Allow(policy.Everything())
	}
	return p, mode.Everything() || asked.Learn || reachesAnybody(p), nil
}

func parseRules(words []string) ([]policy.Rule, error) {
	var rules []policy.Rule
	for _, w := range words {
		r, err := policy.ParseRule(w)
		if err != nil {
			return nil, &ipc.Error{Code: ipc.CodeInvalid, Text: err.Error(), Hint: "write a rule such as " + policy.Instead(w)}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// Four unrelated addresses that are far apart. A policy that allows all of them does not name particular
// destinations.
var anybody = []string{"9.9.9.9", "93.184.216.34", "151.101.1.69", "193.0.6.139"}

// reachesAnybody reports whether rules for addresses amount to the mode "open".
func reachesAnybody(p policy.Policy) bool {
	return slices.ContainsFunc([]uint16{22, 53, 80, 443}, func(port uint16) bool {
		return !slices.ContainsFunc(anybody, func(a string) bool {
			return !p.Decide(policy.Query{Addr: netip.MustParseAddr(a), Port: port}).Allowed
		})
	})
}

// planOf returns the plan for an Egress.
func planOf(asked runner.Egress) (*proxyclient.Plan, error) {
	e, err := compile(asked)
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%w", err)
	}
	return e.plan(), nil
}

func (e *egress) plan() *proxyclient.Plan {
	p := &proxyclient.Plan{Open: e.open, Rules: len(e.policy.Allowed()), Ports: e.policy.Ports()}
	if e.group {
		p.Ports = e.policy.Allow(policy.Everything()).Ports()
	}
	for _, s := range e.secrets {
		p.Env = append(p.Env, proxyclient.Var{Name: s.String(), Value: s.Placeholder()})
	}
	return p
}

// memory is the state that a process passes to its successor through the runner.
type memory struct {
	Generation   int      `json:"generation"`             // number of processes so far
	Placeholders []string `json:"placeholders,omitempty"` // of the secrets, in their order
	CA           []byte   `json:"ca,omitempty"`           // as returned by Proxy.Authority
}

func recall(text []byte) (m memory, err error) {
	if text == nil {
		return m, nil
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("load decisions of the previous process: %w", err)
	}
	return m, nil
}

// hold gives secrets the placeholders that the sandbox already has.
func (e *egress) hold(m memory) {
	for i, p := range m.Placeholders {
		if i < len(e.secrets) {
			e.secrets[i] = e.secrets[i].WithPlaceholder(p)
		}
	}
}

func (e *egress) remember(ca []byte, generation int) []byte {
	m := memory{Generation: generation, CA: ca}
	for _, s := range e.secrets {
		m.Placeholders = append(m.Placeholders, s.Placeholder())
	}
	text, _ := json.Marshal(m) // cannot fail
	return text
}
