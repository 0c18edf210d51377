// Package modes turns the words a caller says about the network into rules: the modes, and
// the servers of package managers. Package mirrors has those that a host has instead.
//
//	m, err := preset.Parse("package-managers")
//	p := policy.Policy{}.Allow(m.Rules()...)
//
// Everything is a table: no file is read, no name resolved.
package preset
