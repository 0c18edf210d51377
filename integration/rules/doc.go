// Package rules checks the sources against the rules of CONTRIBUTING.md, by reading them with go/parser: imports,
// lengths, documentation, and that each claim of SECURITY.md has a test. Its tests need no program and no kernel
// feature, and are most of `make check`.
package rules
