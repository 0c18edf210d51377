// Package rules checks the sources against the rules of CONTRIBUTING.md, by reading them with go/parser. The
// rules cover imports, lengths and documentation, and require a test for each claim of SECURITY.md. The tests
// need no program and no kernel feature, and are most of `make check`.
package rules
