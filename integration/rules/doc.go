// Package rules checks the sources against the rules of CONTRIBUTING.md, by reading them with go/parser. The
// rules cover imports, lengths and documentation, and require a test for each security claim and a row for each
// attack case in docs/security. The tests need no program and no kernel feature, and are most of `make check`.
package rules
