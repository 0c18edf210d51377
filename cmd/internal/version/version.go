// Package version is what demesne's programs say they are.
package version

// Version of all programs: they are built, installed and used together.
const Version = "0.1.0"
