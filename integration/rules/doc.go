// Package rules holds the sources to what CONTRIBUTING.md says of them, by reading them with go/parser: who
// imports whom, how long things are, what is documented, and that each claim of SECURITY.md has a test. Its tests
// need no program and no kernel, and are most of `make check`.
package rules
