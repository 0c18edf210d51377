package runner

import (
	"fmt"
)

// Egress says what of the network a sandbox may reach, by name. A nil or zero Egress is
// nothing but a loopback: no gateway is made then, and none can be had later.
//
// Rules are words here, for whoever sends them need not understand them; the runner
// refuses what is malformed, with the rule quoted. See package policy for the words and
// package modes for the modes.
type Egress struct {
	Mode  string   `json:"mode,omitempty"`  // empty: none. The runner adds its rules; mirrors are the caller's to add
	Allow []string `json:"allow,omitempty"` // rules, as policy.ParseRule reads them
	Deny  []string `json:"deny,omitempty"`  // they go before all that allow

	// Mode "open" and Learn let data out to anybody: with Inputs or a Workspace of the
	// host's they are refused, unless OpenWithInputs. Learn always is.
	OpenWithInputs bool     `json:"open_with_inputs,omitempty"`
	Learn          bool     `json:"learn,omitempty"`    // every public address, for a log to make a policy of
	GoProxy        bool     `json:"go_proxy,omitempty"` // a server on the sandbox's own 127.0.0.1:8087 that leads to Go's public modules and checksums; GOPROXY names it
	Ask            Duration `json:"ask,omitempty"`      // how long a name that no rule speaks of waits for [client.Options.Ask]; 0: it is denied

	// Log is a file of the host for the decisions, one JSON object a line (audit.Record).
	// Create makes it, as the caller, and it is flock(2)ed, shared, for as long as the sandbox
	// lives; it must not be where the sandbox can write.
	Log string `json:"log,omitempty"`

	// Upstream is HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the caller, for the dial out.
	// The runner keeps it in memory only: in no Info, file or receipt.
	Upstream map[string]string `json:"upstream,omitempty"`

	// Secrets are the same. A command finds a placeholder in its environment.
	Secrets []Secret `json:"secrets,omitempty"`
}

// Secret is a credential that a sandbox uses without having it.
type Secret struct {
	Name   string `json:"name"` // of the environment variable inside that holds the placeholder
	Value  string `json:"value"`
	Host   string `json:"host"`             // where the value goes, over TLS; HOST:PORT where that is not 443
	Header string `json:"header,omitempty"` // in which header only; empty: any
}

func (s Secret) String() string { return s.Name }

// GoString keeps the value out of %#v too.
func (s Secret) GoString() string { return "runner.Secret(" + s.Name + ")" }

// Port is a server inside that the host can reach.
type Port struct {
	Listen string `json:"listen"` // 127.0.0.1:8080, [::1]:8080 or unix:/absolute/path
	To     uint16 `json:"to"`     // on the sandbox's loopback
}

// Blocked is what a sandbox wanted of the network and did not get.
type Blocked struct {
	Host   string `json:"host"`           // "*": of more kinds than are listed
	Port   uint16 `json:"port,omitempty"` // 0: a name was asked for
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

func (b Blocked) String() string {
	if b.Port == 0 {
		return fmt.Sprintf("%s (%s)", b.Host, b.Reason)
	}
	return fmt.Sprintf("%s:%d (%s)", b.Host, b.Port, b.Reason)
}

// EgressChange is the body of an egress call: what a live sandbox may or may not reach
// from now on, besides.
type EgressChange struct {
	Sandbox string   `json:"sandbox"`
	Allow   []string `json:"allow,omitempty"`
	Deny    []string `json:"deny,omitempty"`
}

// Question is one that the runner asks who made a sandbox with Egress.Ask.
type Question struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Port    uint16 `json:"port"`
}
