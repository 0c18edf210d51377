package runner

import (
	"fmt"
	"slices"
	"strings"

	"demesne/internal/fsutil"
)

// The egress modes. Package policy, which few programs link, has their rules.
const (
	NoEgress        = "none"
	PackageManagers = "package-managers"
	OpenEgress      = "open"
)

// EgressModes returns the modes, from the narrowest to the widest.
func EgressModes() []string { return []string{NoEgress, PackageManagers, OpenEgress} }

// ClosedModes returns the modes that do not let data leave to any host.
func ClosedModes() []string {
	return slices.DeleteFunc(EgressModes(), func(name string) bool { return name == OpenEgress })
}

// Egress describes which names of the network a sandbox may reach. With a nil or zero Egress a sandbox has only a
// loopback interface: it gets no gateway, and none can be added later.
//
// Rules are strings, so that a caller need not parse them. The runner rejects a malformed rule and quotes it.
// Package policy defines the rules and the modes.
type Egress struct {
	Mode  string   `json:"mode,omitempty"`  // empty: no mode. The runner adds the rules of the mode; the caller adds mirrors
	Allow []string `json:"allow,omitempty"` // rules, as policy.ParseRule reads them
	Deny  []string `json:"deny,omitempty"`  // take precedence over every rule that allows

	// Mode "open" and Learn let data out to any host. The runner refuses them together with Inputs, Mounts or a Workspace
	// of the host. OpenWithInputs lifts that for mode "open", never for Learn.
	OpenWithInputs bool     `json:"open_with_inputs,omitempty"`
	Learn          bool     `json:"learn,omitempty"`    // allow every public address; the log then serves to write a policy
	GoProxy        bool     `json:"go_proxy,omitempty"` // serve Go's public modules and checksums on the sandbox's 127.0.0.1:8087, as GOPROXY
	Gateway        bool     `json:"gateway,omitempty"`  // make a gateway although nothing is allowed: an EgressChange may allow something later
	Ask            Duration `json:"ask,omitempty"`      // how long a name without a matching rule waits for [client.Options.Ask]; 0: deny it

	// Group names sandboxes that reach each other by name, on every TCP port that they listen on: see [Spec.Member]. All of
	// them have the same frontend. The connections are decisions in the log, and Deny applies to them. A sandbox with data
	// of the host and one that reaches everything are not in one group.
	Group string `json:"group,omitempty"`
	// Aliases are further names of the sandbox in its group. A member's own name precedes the aliases of others, and of
	// several sandboxes with an alias the newest one has it.
	Aliases []string `json:"aliases,omitempty"`

	// Log is a host file for the decisions, one JSON object per line (proxy.Record). Create makes the file with the
	// caller's rights. A shared flock(2) is held on it for the life of the sandbox. It must not be in a place that
	// the sandbox can write to.
	Log string `json:"log,omitempty"`

	// Upstream holds the caller's HTTP_PROXY, HTTPS_PROXY and NO_PROXY, for outgoing connections. The runner keeps
	// them in memory only: no Info, file or receipt contains them.
	Upstream map[string]string `json:"upstream,omitempty"`

	// Secrets, too, are kept in memory only. A command finds a placeholder in its environment.
	Secrets []Secret `json:"secrets,omitempty"`

	Trust Trust `json:"trust,omitzero"` // in addition to the authorities that the sandbox's files trust

	// PackageAge is the least age of the packages that registries offer, but for those named in PackageAgeExcept; 0: any.
	PackageAge       Duration          `json:"package_age,omitempty"`
	PackageAgeExcept []string          `json:"package_age_except,omitempty"`
	Registries       map[string]string `json:"registries,omitempty"` // hosts of mirrors, and the kind of each: see policy.Registry

	// HostPorts are ports at which the sandbox reaches the host's 127.0.0.1 as its own, if a rule allows 127.0.0.1:PORT. Not with Group.
	HostPorts []uint16 `json:"host_ports,omitempty"`

	Routes []Route  `json:"routes,omitempty"` // HTTP services that the proxy provides on the sandbox's loopback
	Listen []uint16 `json:"listen,omitempty"` // ports of a OneShot sandbox's loopback that the caller serves: see [client.Sandbox.Listener]
}

// Trust holds the certificate authorities that variables of the caller name, such as NODE_EXTRA_CA_CERTS. Like Upstream
// it is kept in memory only.
type Trust struct {
	Host bool   `json:"host,omitempty"` // the machine's own file of certificates is among them
	PEM  []byte `json:"pem,omitempty"`  // certificates of other files, and nothing else
}

// EgressRules is the answer of the program that reads policy files and modes, demesne-proxy.
type EgressRules struct {
	Egress          // Mode, Allow, Deny and GoProxy; the runner adds the mode's own rules
	Wrong  []string `json:"wrong,omitempty"` // one line for each error; the rest is then empty
	Notes  []string `json:"notes,omitempty"` // about configuration that could not be parsed
	Env    []string `json:"env,omitempty"`   // mirrors of this machine's tools, for [Defaults], without passwords
	CAs    []string `json:"cas,omitempty"`   // paths of certificate files that these tools trust, for [Trust]

	Sources *RuleSources `json:"sources,omitempty"` // nil: the answer holds only once
}

// RuleSources are the inputs of an EgressRules. The answer holds while no file has changed and no variable is set.
type RuleSources struct {
	Files []fsutil.Stamp `json:"files,omitempty"`
	Env   []string       `json:"env,omitempty"`
}

// Secret is a credential that a sandbox can use without ever seeing its value.
type Secret struct {
	Name   string `json:"name"` // the environment variable in the sandbox that holds the placeholder
	Value  string `json:"value"`
	Host   string `json:"host"`             // the only destination of the value, over TLS; HOST:PORT if the port is not 443
	Header string `json:"header,omitempty"` // the only header that may carry the value; empty: any
	// Set is a text that contains "${}" once, for the value. The proxy sets Header to it in every request to Host over TLS, so
	// that programs need not know the placeholder.
	Set string `json:"set,omitempty"`
}

func (s Secret) String() string { return s.Name }

// GoString omits the value from %#v as well.
func (s Secret) GoString() string { return "runner.Secret(" + s.Name + ")" }

// Port is a server in the sandbox that the host can reach.
type Port struct {
	Listen string `json:"listen"` // 127.0.0.1:8080, [::1]:8080 or unix:/absolute/path
	To     uint16 `json:"to"`     // port on the sandbox's loopback
	// Within names a member of the sandbox's group: Listen is then an address of that member's loopback, and not of the host.
	Within string `json:"within,omitempty"`
}

// Blocked is a destination that a sandbox tried to reach and was denied.
type Blocked struct {
	Host   string `json:"host"`           // "*": stands for all entries beyond the listed ones
	Port   uint16 `json:"port,omitempty"` // 0: a name lookup
	Reason string `json:"reason"`
	Allow  string `json:"allow,omitempty"` // the rule that would allow it, if one rule would
	Times  int    `json:"times"`
	Failed bool   `json:"failed,omitempty"` // it was allowed, and failed: a name that does not resolve
}

func (b Blocked) String() string {
	if b.Port == 0 {
		return fmt.Sprintf("%s (%s)", b.Host, b.Reason)
	}
	host := b.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d (%s)", host, b.Port, b.Reason)
}

// EgressChange is the body of an egress call. It adds rules for a live sandbox, or replaces them, or the Header of its
// Routes.
type EgressChange struct {
	Sandbox string   `json:"sandbox"`
	Allow   []string `json:"allow,omitempty"`
	Deny    []string `json:"deny,omitempty"`

	// Replace puts Mode and the rules above in the place of the present ones.
	Replace bool   `json:"replace,omitempty"`
	Mode    string `json:"mode,omitempty"`

	// Headers replaces the Header of routes, by port: a credential was renewed.
	Headers map[uint16]map[string]string `json:"headers,omitempty"`
}

// LimitChange is the body of a limits call. It changes limits of a live sandbox, or what other sandboxes have of them.
type LimitChange struct {
	Sandbox string `json:"sandbox"`
	Limits  Limits `json:"limits"` // zero: as it is. Disk and Files cannot change

	// Lent is the memory and the processors that other sandboxes have of Limits, which do not change: the sandbox itself
	// has the rest until the next loan or its end. nil: as it is. It excludes Limits.
	Lent *Limits `json:"lent,omitempty"`
}

// Question asks the creator of a sandbox with Egress.Ask to decide about a name.
type Question struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Port    uint16 `json:"port"`
}
