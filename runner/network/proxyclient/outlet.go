// Package outlet is what demesne-runner knows of demesne-proxy, which serves the ways out of
// all its sandboxes: how it is started, talked to, and replaced when it dies.
//
// The runner has all capabilities over the sandboxes' mounts and reads nothing that comes
// from a network; the proxy reads hostile bytes all day and has no capability at all. What a
// rule or a mode means only the proxy knows, so that the runner links neither net/http nor
// a list of public suffixes; whether a sandbox may have what they add up to, the runner decides.
//
//	demesne-runner                       demesne-proxy
//	  │ serve {sandbox, egress} + log ─────▶│ understands it, makes a proxy
//	  │◀───────────────────────── plan ─────│ open?, rules, certificate, memory
//	  │ listen {sandbox} + sockets ────────▶│ serves from here on
//	  │ plan {egress} ─────────────────────▶│ what it would amount to
//	  │ change {sandbox, egress} ──────────▶│ holds for what comes next
//	  │ blocked {sandbox} ─────────────────▶│ what was denied so far
//	  │◀─── note {sandbox, denied or spent} ─│ before it goes on; not answered
//	  │◀──────── ask {sandbox, name, port} ─│ answered when the policy is what it is to be
//	  │ close {sandbox} ───────────────────▶│ answered when the log is complete
//	  ╳ EOF                                 │ exits; so it does when the runner dies
//
// One process serves all sandboxes of a runner. When it dies another one is started and
// told everything again, with the sockets, which the runner keeps: connections that were
// open end, those that come meanwhile wait in the sockets' queues. A sandbox keeps its
// placeholders and its certificate authority by the memory that the first plan gave, and what was
// denied and spent is in the notes.
//
// Package serve, below, is the proxy's side.
package proxyclient

import (
	"net/netip"

	"demesne/runner"
	"demesne/runner/ipc"
)

// The calls drawn above.
const (
	OpServe   ipc.Op = "outlet.serve"
	OpListen  ipc.Op = "outlet.listen"
	OpPlan    ipc.Op = "outlet.plan"
	OpChange  ipc.Op = "outlet.change"
	OpBlocked ipc.Op = "outlet.blocked"
	OpClose   ipc.Op = "outlet.close"
	OpAsk     ipc.Op = "outlet.ask"
	OpNote    ipc.Op = "outlet.note"
)

// Descriptors of the calls.
const (
	FileLog    = "log"     // of serve: for the decisions; may be missing
	FileProxy  = "proxy"   // of listen: for HTTP and SOCKS5
	FileDNS    = "dns"     // UDP
	FileDNSTCP = "dns-tcp" //
	FileGo     = "go"      // for a Go module proxy; may be missing
	FileNamed  = "named."  // and a number: where the local address says which name it is
)

// Serve is the body of [OpServe]. The reply is a [Plan].
type Serve struct {
	Sandbox string        `json:"sandbox"`
	Egress  runner.Egress `json:"egress"` // with Upstream and Secrets
	V4      netip.Prefix  `json:"v4"`     // the pools of addresses that stand for names
	V6      netip.Prefix  `json:"v6"`
	Memory  []byte        `json:"memory,omitempty"` // of the Plan that a process before this one gave
	Spent   []Spent       `json:"spent,omitempty"`  // of budgets, with processes before this one
}

// Spent is what has been used up of a rule's budget, since the sandbox began.
type Spent struct {
	Rule        string `json:"rule"` // its text
	Bytes       int64  `json:"bytes,omitempty"`
	Connections int64  `json:"connections,omitempty"`
	Requests    int64  `json:"requests,omitempty"`
}

// Note is the body of [OpNote]: what must not be lost with the process. The kernel delivers it though the
// process is killed right behind it.
type Note struct {
	Sandbox string          `json:"sandbox"`
	Denied  *runner.Blocked `json:"denied,omitempty"` // so often, by this process: once, twice, four times…
	Spent   *Spent          `json:"spent,omitempty"`  // as much or more
}

// Plan is what an Egress amounts to.
type Plan struct {
	Open   bool     `json:"open"`             // to everybody: by its mode, to learn, or by rules for all addresses
	Rules  int      `json:"rules"`            // that allow something
	Ports  []uint16 `json:"ports,omitempty"`  // that they are about, for who can listen on some only
	Env    []Var    `json:"env,omitempty"`    // the placeholders of secrets
	CA     []byte   `json:"ca,omitempty"`     // PEM, of a sandbox with secrets
	Memory []byte   `json:"memory,omitempty"` // for the next process; nobody else reads it. It has the CA's key
}

// Var is a variable of the environment inside.
type Var struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Change is the body of [OpChange]: the whole of the words that hold from now on. Those of
// Upstream and Secrets do not change.
type Change struct {
	Sandbox string        `json:"sandbox"`
	Egress  runner.Egress `json:"egress"`
}

// Listen is the body of [OpListen]. A second one for the same sandbox brings further sockets of
// [FileNamed], and nothing else.
type Listen struct {
	Sandbox string `json:"sandbox"`
	NoIPv6  bool   `json:"no_ipv6,omitempty"` // no answer may name an address of V6: it leads nowhere
}

// Target is the body of the calls that only name a sandbox.
type Target struct {
	Sandbox string `json:"sandbox"`
}

// Question is the body of [OpAsk]: a name that no rule speaks of.
type Question struct {
	Sandbox string `json:"sandbox"`
	Name    string `json:"name"`
	Port    uint16 `json:"port"`
}
