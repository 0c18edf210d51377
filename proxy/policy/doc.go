// Package policy decides what a sandbox may reach. It is pure: no socket, no clock,
// no resolver, so that every answer and its reason can be listed in a table.
//
//	rule, err := policy.ParseRule("*.example.com:443")
//	p := policy.Policy{}.Allow(rule)          // the zero Policy denies everything
//	q, err := policy.Ask("api.example.com", 443)
//	p.Decide(q)                               // Allow, rule "*.example.com:443"
//	p.Dial(q, addr)                           // and may it be reached at this address?
//
// # Words
//
//	example.com              this name, ports 80 and 443; to deny: every port
//	example.com:*            every port
//	*.example.com:443        every name below it, not itself; ports 443,8000-8010
//	tcp://example.com:443    whatever is spoken there: without it port 443 has to be
//	                         TLS and port 80 HTTP, for the same name, and so have TLS
//	                         and HTTP on other ports
//	10.1.0.0/16:5432         addresses, asked for as such or found for a name
//	[fd00::1]:443            one address
//
// A Rule may further be narrowed to methods and paths, which holds only for requests
// that can be read: for an encrypted one such a rule says no. Deny rules come first,
// wherever they stand. That, and more, may follow after a space:
//
//	api.example.com:80 methods=GET,HEAD path=/v1/*
//	pypi.corp.example:443 private            the name may lead to a private address
//	example.com:443 ech                      TLS may hide another ClientHello (ECH)
//	example.com max-bytes=1000000 max-requests=100 max-connections=10
//
// # Names
//
// A [Name] has one spelling: IDNA (UTS 46) to ASCII, lower case, no trailing dot. What
// is compared, resolved, dialled and logged is that spelling. A name that could be
// read as an address by anybody (0x7f.1, 2130706433, 010.0.0.1) is no name.
//
// # Addresses
//
// A name alone says nothing about where it leads: its owner chooses. [Policy.Dial]
// therefore allows public addresses only ([Classify]), unless an address rule covers
// what was found, or the rule that allowed the name says it is private ([Rule.Private]).
// An address that carries another one (v4-mapped, NAT64, 6to4, Teredo) is as good as
// the worse of the two. Metadata services of clouds need a rule for that very address.
//
// The package does not know which addresses are the host's own; package proxy does.
package policy
