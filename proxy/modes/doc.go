// Package modes turns the words a caller says about the network into rules: the modes,
// the servers of package managers, and the mirrors that the host's own tools are told
// to use.
//
//	m, err := modes.Parse("package-managers")
//	p := policy.Policy{}.Allow(m.Rules()...)
//	for _, t := range modes.Tools() {         // what stands in t.Files and t.Env is the caller's to read
//		rules, err := t.Mirrors(text)
//		p = p.Allow(rules...)
//	}
//
// Everything is a pure function of its text: no file is read, no name resolved. A
// mirror is allowed as the exact name and port that the tool would connect to, and may
// be on a private network. Credentials in its URL go nowhere.
package modes
