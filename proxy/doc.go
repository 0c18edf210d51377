// Package proxy is the egress proxy of one sandbox: it decides by the sandbox's policy, then dials. The caller
// passes listeners that only the sandbox can reach. Outgoing connections start in the network namespace of this
// process.
//
//	p, err := proxy.New(proxy.Config{Sandbox: id, Policy: pol, V4: pool4, V6: pool6, Log: file})
//	go p.ServeProxy(l)       // HTTP, CONNECT and SOCKS5 on one port
//	go p.ServeNamed(l)       // connections to an address that DNS gave for a name
//	go p.ServeDNS(packets)   // and ServeDNSTCP
//	go p.ServeGo(l)          // a Go module proxy
//	go p.ServeRoute(l, port) // one of Config.Routes
//	p.SetPolicy(other)       // applies to later decisions
//	defer p.Close()
//
// # Three ways in, one decision
//
//	CONNECT, SOCKS5, absolute-form ──┐
//	address of a name (Named) ───────┼─▶ policy.Decide ─▶ resolve ─▶ policy.Dial ─▶ dial
//	DNS ── policy.Resolves ── address┘     name, port      once       address      that address
//
// DNS gives each name that may be allowed its own fake address from the pools, and answers NXDOMAIN for any other
// name. A query is forwarded only after the policy allowed the name, and only to learn whether the name exists.
// So the destination address of a connection identifies the name, whatever protocol the connection speaks.
//
// # What the proxy enforces
//
//   - On port 443 the first bytes must be a TLS ClientHello for the name that was connected to. crypto/tls
//     parses it, across any number of records. The proxy answers a missing or different name, encrypted
//     client hello (unless the rule accepts it) or no TLS with alert 112 and closes. Each further ClientHello
//     that a server requests (HelloRetryRequest) is checked in the same way.
//   - On port 80 the client must speak HTTP, and each request must have that name as Host.
//   - On other ports the client's first bytes decide. A ClientHello or an HTTP request is checked as above;
//     any other protocol passes. A ClientHello that follows other bytes (STARTTLS) is not checked. HTTP/2
//     without TLS is refused, as the proxy does not read its host. A tcp:// rule turns these checks off for
//     the ports that it names.
//   - Where the proxy reads HTTP and a response ends early, it resets the client's connection.
//   - For the host of a [Secret] the proxy ends TLS with a certificate of the sandbox's own CA. It opens a
//     new TLS connection to the server and verifies it by the host's roots. Each request is read and decided
//     like one on port 80, by method and path too. Only HTTP/1.1 is offered. The proxy blanks secret values
//     in responses; see package redact.
//   - The proxy does not see inside other TLS connections. A server that serves several names (a CDN) can be
//     asked there for another name (domain fronting).
//   - A name is resolved once. The proxy checks the addresses found and dials one of them as a literal
//     address. The host's own addresses ([OwnAddress]) need a rule that names them, as private ones do.
//   - Where the host itself uses a proxy ([Upstream]), names go to that proxy, which resolves them. The
//     addresses are then not checked here.
//   - With Config.Approve a person may be asked about a name that no rule covers. The question is always
//     about a connection, and nothing inside the sandbox can answer it.
//   - Heads must arrive within Limits.Head, connections are limited in number, and a rule can have a budget.
//     Only tunnels have no time limit.
//
// # Routes
//
// A [Route] is an HTTP service on the sandbox's loopback, for one server that the operator chose. No rule and no check
// of addresses applies to that server; it may be on this machine.
//
//   - A request needs the route's token, which is compared in constant time. Otherwise the answer is 401.
//   - Only listed methods and paths pass. A path is decoded once; one that servers read differently (an escaped slash, a
//     dot segment, a backslash) does not pass, nor do CONNECT and upgrades. The answer is 403. The path that is
//     forwarded is the listed text.
//   - The request's own credentials are removed, in headers and in the query, and the route's headers inserted. TLS is
//     verified by the host's roots. Redirects are returned to the client.
//   - The response is forwarded piece by piece, with the inserted credentials blanked as for secrets. It has no time
//     limit. The body of a request has at most 64 MiB, and its head must arrive within Limits.Head.
//   - With Route.Usage a meter reads the token counts of a language model's responses, as JSON or as server-sent
//     events. It reads a copy after each piece was sent. It keeps at most 8 MiB of a response, and all meters together 64 MiB: a
//     longer event or JSON text counts as malformed. [Proxy.SetRouteHeader] replaces the inserted headers for later requests.
//
// # The log
//
// Every decision becomes an [Record], written when its connection, request or query is over.
// [Proxy.Blocked] returns the denials for the result. Repeated decisions are counted: one line states how many it
// stands for. Denials have their own share of the log's bytes and cannot use up the space for allowed decisions.
// The proxy reserves space for a line before it allows something. Without space, or if the log cannot be written,
// it denies. A log can be analyzed later:
//
//	log, err := proxy.ReadLog(file)         // one Record as JSON a line
//	words := proxy.Suggest(log)             // rules that would have allowed the same
//	blocked := proxy.Replay(log, policy)    // what another policy would have denied
//
// Tunnels copy between plain *net.TCPConn: small messages by read(2) and write(2), larger ones within the kernel
// by splice(2).
//
// The package creates no namespaces and reads no configuration.
package proxy
