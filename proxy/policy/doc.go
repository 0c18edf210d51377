// Package policy decides what a sandbox may reach. It uses no socket, clock or resolver, so that a table can list
// every answer and its reason.
//
//	rule, err := policy.ParseRule("*.example.com:443")
//	p := policy.Policy{}.Allow(rule)          // the zero Policy denies everything
//	q, err := policy.Ask("api.example.com", 443)
//	d := p.Decide(q)                          // allowed by rule "*.example.com:443"
//	p.Dial(d, q, addr)                        // may it be reached at this address?
//
// # Rules in words
//
//	example.com              this name, ports 80 and 443; to deny: every port
//	example.com:*            every port
//	*.example.com:443        every name below it, not itself; ports 443,8000-8010
//	tcp://example.com:443    any protocol; without tcp://, port 443 must be TLS and port 80
//	                         HTTP, for the same name, and TLS and HTTP on other ports must
//	                         be for that name too
//	10.1.0.0/16:5432         addresses, requested as such or found for a name
//	[fd00::1]:443            one address
//
// A Rule can be narrowed to methods and paths. It then applies only to requests that can be read; an encrypted
// request does not match an allow rule of this kind. Deny rules take precedence, wherever they stand. Options
// follow after a space:
//
//	api.example.com:80 methods=GET,HEAD path=/v1/*
//	pypi.corp.example:443 private            the name may resolve to a private address
//	example.com:443 ech                      the ClientHello may contain an encrypted one (ECH)
//	example.com max-bytes=1000000 max-requests=100 max-connections=10
//
// # Names
//
// A [Name] has one spelling: IDNA (UTS 46) converted to ASCII, in lower case, without a trailing dot. That
// spelling is compared, resolved, dialled and logged. A name that some parser could read as an address (0x7f.1,
// 2130706433, 010.0.0.1) is rejected.
//
// # Addresses
//
// The owner of a name chooses its addresses. [Policy.Dial] therefore allows only public addresses ([Classify]).
// Other addresses need an address rule, or a rule for the name that allows private ones ([Rule.Private]). A
// v4-mapped address is treated as the IPv4 address. Another address that carries an IPv4 address (NAT64, 6to4,
// Teredo) needs an address rule, and the carried address is checked too. A cloud's metadata service needs a rule
// for exactly its address.
//
// # Modes
//
// A [Mode] names the rules that a sandbox starts with, such as those for the servers of package managers
// ([Ecosystems]):
//
//	m, err := policy.ParseMode("package-managers")
//	p := policy.Policy{}.Allow(m.Rules()...)
//
// Modes and ecosystems are tables: the package reads no files.
//
// The package does not know which addresses belong to the host; package proxy does.
package policy
