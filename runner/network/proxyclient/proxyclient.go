// Package proxyclient is demesne-runner's side of demesne-proxy, the process that serves the egress of all its
// sandboxes. It starts the process, talks to it, and replaces it when it dies.
//
// The runner has all capabilities over the sandboxes' mounts but reads nothing from a network. The proxy reads
// hostile bytes all day but has no capability. Only the proxy interprets rules and modes, so the runner links neither
// net/http nor the public suffix list. The runner decides whether a sandbox may have the resulting plan.
//
//	demesne-runner                       demesne-proxy
//	  │ serve {sandbox, egress} + logs ────▶│ parses it, makes a proxy
//	  │◀───────────────────────── plan ─────│ open?, rules, certificate, memory
//	  │ listen {sandbox} + sockets ────────▶│ starts serving; can be part of serve
//	  │ plan {egress} ─────────────────────▶│ returns the plan, changes nothing
//	  │ change {sandbox, egress} ──────────▶│ applies to new connections
//	  │ blocked {sandbox} ─────────────────▶│ denials so far
//	  │◀─── note {sandbox, denied or spent} ─│ sent before the proxy continues; not answered
//	  │◀──────── ask {sandbox, name, port} ─│ answered once the policy is up to date
//	  │◀─────── dial {sandbox, name, port} ─│ answered with a connection to a sandbox of the same group
//	  │ close {sandbox} ───────────────────▶│ answered once the log is complete
//	  ╳ EOF                                 │ exits; it also exits when the runner dies
//
// One process serves all sandboxes of a runner. When it dies, the runner starts another one and repeats everything,
// including the sockets, which the runner keeps open. Open connections end; new ones wait in the sockets' queues. The
// memory in the first plan preserves a sandbox's placeholders and certificate authority. The notes preserve its
// denials and used budgets.
//
// Program demesne-proxy is the proxy's side.
package proxyclient

import (
	"net/netip"
	"strconv"

	"demesne/runner"
	"demesne/runner/ipc"
)

// The calls in the diagram above.
const (
	OpServe   ipc.Op = "egress.serve"
	OpListen  ipc.Op = "egress.listen"
	OpPlan    ipc.Op = "egress.plan"
	OpChange  ipc.Op = "egress.change"
	OpBlocked ipc.Op = "egress.blocked"
	OpClose   ipc.Op = "egress.close"
	OpAsk     ipc.Op = "egress.ask"
	OpNote    ipc.Op = "egress.note"
	OpDial    ipc.Op = "egress.dial"
)

// Descriptors of the calls.
const (
	FileLog    = "log"     // of serve: receives the decisions; optional
	FileProxy  = "proxy"   // of listen: HTTP and SOCKS5
	FileDNS    = "dns"     // UDP
	FileDNSTCP = "dns-tcp" // DNS over TCP
	FileGo     = "go"      // a Go module proxy; optional
	FileNamed  = "named."  // prefix of a number: sockets whose local address stands for a name
	// FileArrivals is a SOCK_SEQPACKET socket that takes the place of all others. Each message on it has a connection, and
	// as text the name of the socket at which it would have arrived. After FileNamed stands the address in place of a number.
	FileArrivals = "arrivals"

	FileDialled = "dialled" // of the reply to dial: the connection
)

// FileRoute returns the name of the socket of the route on a port, in a listen call.
func FileRoute(port uint16) string { return "route." + strconv.Itoa(int(port)) }

// FileRecord returns the name of the file for the usage records of the i-th route, in a serve call. Routes with the
// same Record share the file of the first of them.
func FileRecord(i int) string { return "record." + strconv.Itoa(i) }

// Serve is the body of [OpServe]. The reply is a [Plan].
type Serve struct {
	Sandbox string        `json:"sandbox"`
	Egress  runner.Egress `json:"egress"` // with Upstream, Secrets and the credentials of Routes
	V4      netip.Prefix  `json:"v4"`     // V4 and V6 are the pools of addresses that stand for names
	V6      netip.Prefix  `json:"v6"`
	Member  runner.Member `json:"member,omitzero"`  // zero: the sandbox is in no group
	Memory  []byte        `json:"memory,omitempty"` // from the Plan of an earlier process
	Spent   []Spent       `json:"spent,omitempty"`  // from budgets, by earlier processes
	Listen  *Listen       `json:"listen,omitempty"` // also do what [OpListen] does, with the sockets of this call
}

// Spent is the used part of a rule's budget since the sandbox started.
type Spent struct {
	Rule        string `json:"rule"` // text of the rule
	Bytes       int64  `json:"bytes,omitempty"`
	Connections int64  `json:"connections,omitempty"`
	Requests    int64  `json:"requests,omitempty"`
}

// Note is the body of [OpNote]. It holds state that must survive the proxy. The kernel delivers it even if the proxy
// is killed right after sending it.
type Note struct {
	Sandbox string          `json:"sandbox"`
	Denied  *runner.Blocked `json:"denied,omitempty"` // count by this process, sent at 1, 2, 4, 8, …
	Spent   *Spent          `json:"spent,omitempty"`  // at least the amount used
}

// Plan is the proxy's interpretation of an Egress.
type Plan struct {
	Open   bool     `json:"open"`             // reaches everything: by its mode, by Learn, or by rules for all addresses
	Rules  int      `json:"rules"`            // number of rules that allow something
	Ports  []uint16 `json:"ports,omitempty"`  // ports in the rules, for a kernel where each port needs a listener
	Env    []Var    `json:"env,omitempty"`    // placeholders of the secrets
	CA     []byte   `json:"ca,omitempty"`     // PEM; only for a sandbox with secrets
	Memory []byte   `json:"memory,omitempty"` // for the next process; opaque to the runner. It contains the CA's key
}

// Var is an environment variable in the sandbox.
type Var struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Change is the body of [OpChange]: the complete new rules, and the routes with their new headers. Upstream, Secrets
// and the rest of the routes do not change.
type Change struct {
	Sandbox string        `json:"sandbox"`
	Egress  runner.Egress `json:"egress"`
}

// Listen is the body of [OpListen]. A second call for the same sandbox may only add sockets of [FileNamed].
type Listen struct {
	Sandbox string `json:"sandbox"`
	NoIPv6  bool   `json:"no_ipv6,omitempty"` // answers must not contain V6 addresses, which are not routed
}

// Target is the body of calls that only name a sandbox.
type Target struct {
	Sandbox string `json:"sandbox"`
}

// Question is the body of [OpAsk], with a name that no rule covers, and of [OpDial], with a member's name.
type Question struct {
	Sandbox string `json:"sandbox"`
	Name    string `json:"name"`
	Port    uint16 `json:"port"`
}
