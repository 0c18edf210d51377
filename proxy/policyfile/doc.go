// Package policyfile reads a policy from a TOML file with this schema:
//
//	mode = "none"                              # or package-managers, open
//	allow = ["example.com", "*.example.org:443", "10.1.0.0/16:5432"]
//	deny = ["ads.example.com"]
//
//	[[rule]]                                   # a rule with options
//	allow = "api.example.com:80"               # or deny
//	methods = ["GET", "HEAD"]                  # absent: all
//	path = "/v1/*"                             # absent: all
//	private = true                             # the name may resolve to a private address
//	ech = true                                 # the ClientHello may contain an encrypted one: see policy.Rule.ECH
//	max-bytes = 1000000                        # both directions; of HTTP that can be read, bodies only; absent: no bound
//	max-requests = 100
//	max-connections = 10
//
// Package policy defines the syntax of rules. The package ignores nothing: an unknown key, a wrong type and a
// malformed rule are each an [Error] with its line. All errors are reported at once.
//
// It also turns the mirrors that the host's tools are configured to use into rules:
//
//	for _, t := range policyfile.Tools() {    // the caller reads the contents of t.Files and t.Env
//		rules, err := t.Mirrors(text)
//		p = p.Allow(rules...)
//	}
//
// A rule allows the exact name and port that the tool would connect to, even on a private network. Credentials in a
// mirror's URL are dropped. Every function depends only on its text: the package reads no files and resolves no names.
package policyfile
