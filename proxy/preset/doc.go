// Package preset turns network settings of a caller into rules: the modes, and the servers of package managers.
// Package mirrors adds the servers that a host uses instead.
//
//	m, err := preset.Parse("package-managers")
//	p := policy.Policy{}.Allow(m.Rules()...)
//
// Everything is a table: the package reads no files and resolves no names.
package preset
