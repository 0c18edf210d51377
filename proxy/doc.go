// Package proxy is the way out of one sandbox: it decides, then dials. It is handed
// listeners that only the sandbox can reach, and connects from where the process is.
//
//	p, err := proxy.New(proxy.Config{Sandbox: id, Policy: pol, V4: pool4, V6: pool6, Log: file})
//	go p.ServeProxy(l)       // HTTP, CONNECT and SOCKS5 on one port
//	go p.ServeNamed(l)       // whatever was connected to by a name's address
//	go p.ServeDNS(packets)   // and ServeDNSTCP
//	go p.ServeGo(l)          // a Go module proxy
//	p.SetPolicy(other)       // holds for what comes next
//	defer p.Close()
//
// # Three ways in, one decision
//
//	CONNECT, SOCKS5, absolute-form ──┐
//	address of a name (Named) ───────┼─▶ policy.Decide ─▶ resolve ─▶ policy.Dial ─▶ dial
//	DNS ── policy.Resolves ── address┘     name, port      once       address      that address
//
// DNS gives each name the policy knows an address of its own from the pools, and
// NXDOMAIN for any other; no query is sent on before the policy said yes, and then only to
// learn whether a name exists. So a connection to an address says which
// name it is for, whatever protocol it speaks.
//
// # What is held on the way
//
//   - On port 443 the first bytes must be a TLS ClientHello for that very name, read by
//     crypto/tls, in however many records; no name, another one, encrypted client
//     hello (unless the rule accepts it) or no TLS: alert 112 and the end. Each ClientHello
//     that a server asks for after it (HelloRetryRequest) is held to the same. On port 80 it
//     must be HTTP, each request with that Host.
//   - On other ports the client's first bytes decide: a ClientHello or an HTTP request is held to the
//     name like that, and anything else passes. A ClientHello behind other bytes
//     (STARTTLS) is not looked at. HTTP/2 without TLS is refused: its host is not read.
//     A tcp:// rule lifts all of this for the ports that it names.
//   - An answer that is cut on its way here resets the client, where HTTP is read here.
//   - Towards the host of a [Secret] TLS ends here, with a certificate of the sandbox's own
//     CA, and begins anew, verified by the host's roots: each request is read and judged
//     like one on port 80, by method and path too. HTTP/1.1 only. What comes back of a
//     value is blanked; see package redact.
//   - What a server does behind the TLS it was asked for by name is out of sight: one
//     that serves several names (a CDN) can be asked for another inside (fronting).
//   - A name is resolved once; the addresses found are judged, and one of those is dialled
//     as an address. The host's own addresses, those that the kernel's routes keep on it (package
//     hostaddr), need a rule that names them, like private ones.
//   - Where the host itself is told to use a proxy ([Upstream]), names go to that one,
//     which resolves them: the addresses they lead to are then its business.
//   - With Config.Approve a person may be asked about a name that no rule speaks of; the
//     question is always about a connection, and nothing inside can answer it.
//   - Heads have to come within Limits.Head, connections are counted, what a rule
//     lets through can be bounded. Nothing waits without end but a tunnel.
//
// # What happened
//
// Every decision is a record of package decisions, written when the connection, request or
// query it was about is over; [Proxy.Blocked] has the denials for the result. Decisions that repeat are counted: a line
// says how many it stands for. Denials have a share of the log's bytes, so that they take no room from
// what is allowed. Before something is allowed there is room for its line; without room, or where the
// log cannot be written, it is denied.
//
// Tunnels are copied between plain *net.TCPConn: small messages by read(2) and write(2), and
// what is more by the kernel alone (splice(2)).
//
// The package makes no namespaces and reads no configuration.
package proxy
