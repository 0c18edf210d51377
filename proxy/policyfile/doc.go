// Package policyfile reads a policy from TOML or YAML, which have one schema:
//
//	mode = "none"                              # or package-managers, open
//	allow = ["example.com", "*.example.org:443", "10.1.0.0/16:5432"]
//	deny = ["ads.example.com"]
//
//	[[rule]]                                   # what needs more than words
//	allow = "api.example.com:80"               # or deny
//	methods = ["GET", "HEAD"]                  # none: all
//	path = "/v1/*"                             # none: all
//	private = true                             # the name may lead to a private address
//	ech = true                                 # TLS may have an encrypted ClientHello inside: see policy.Rule.ECH
//	max-bytes = 1000000                        # both ways, of HTTP that can be read bodies only; none: no bound, as below
//	max-requests = 100
//	max-connections = 10
//
// Package policy says what the words mean. Nothing is ignored: an unknown key, a
// wrong type, a malformed rule is an [Error] with its line, and all of them are told
// at once. YAML's anchors and aliases are refused, and so is a second document.
package policyfile
