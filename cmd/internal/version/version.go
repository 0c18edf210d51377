// Package version holds the version of demesne's programs.
package version

// Version is the version of all programs: they are built, installed and used together.
const Version = "0.1.0"
